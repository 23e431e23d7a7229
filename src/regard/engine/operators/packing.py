"""Packs masks, biases and score functions into arguments of a PyTorch operator: a string, numbers and
tensors.

`pack` runs while a program is traced, so it only reads attributes: lengths stay symbolic, and tensors become
inputs of the graph. `unpack` runs with the graph.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from secrets import token_hex
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard import masks, scores
from regard.errors import BackendError
from regard.masks import And, Documents, Mask, Not, Or
from regard.scores import Bias, Score

__all__ = ["Packed", "is_packable", "pack", "unpack"]

JOINS = (And, Or, Not)
KINDS: dict[str, Any] = {
    kind.__name__: kind
    for module in (masks, scores)
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind)
}
OWN = {kind: name for name, kind in KINDS.items()}
# Objects that can't be imported by name, by number; the prefix identifies the process.
PROCESS = token_hex(8)
_unnamed: list[Any] = []


Answer = TypeVar("Answer", bound=Callable[..., str | None])


class Packed:
    """The numbers and tensors of packed objects. (Not a dataclass: tracers can't create one with
    factories.)"""

    def __init__(
        self, numbers: Sequence[int] = (), reals: Sequence[float] = (), tensors: Sequence[Tensor] = ()
    ) -> None:
        self.numbers, self.reals, self.tensors = [*numbers], [*reals], [*tensors]


def pack(x: Any, into: Packed) -> str:
    """The form of an object as JSON; its numbers and tensors are appended to `into`.

    >>> from regard.masks import Causal, Window
    >>> packed = Packed()
    >>> pack(Causal() & Window(16), packed), packed.numbers
    ('["And",["Causal","i"],["Window","i","i"]]', [0, 16, 16])
    """
    if x is None:
        return '"none"'
    if x is True or x is False:
        return '"true"' if x else '"false"'
    if isinstance(x, int | torch.SymInt):
        into.numbers.append(x)  # pyright: ignore[reportArgumentType]
        return '"i"'
    if isinstance(x, float | torch.SymFloat):
        into.reals.append(x)  # pyright: ignore[reportArgumentType]
        return '"f"'
    if isinstance(x, Tensor):
        into.tensors.append(x)
        return '"t"'
    if isinstance(x, tuple):
        return _joined('"tuple"', list(x), into)
    if isinstance(x, range):
        return _joined('"range"', [x.start, x.stop, x.step], into)
    if isinstance(x, Mask | Bias | Score):
        return _packed_object(x, into)
    return f'"={_name(x)}"'


def is_packable(x: Any) -> bool:
    """Whether a mask, a bias or a score function can be packed: it is a dataclass, and so are its parts.

    A function created in the traced program, or one that captures its tensors, can't be called later.
    """
    if isinstance(x, JOINS):
        return all(is_packable(part) for part in x.parts)
    if isinstance(x, Mask | Bias | Score):
        names = _fields(type(x))
        return names is not None and all(is_packable(getattr(x, name)) for name in names.split())
    if not isinstance(x, FunctionType):
        return True
    try:
        cells = x.__closure__
    except AttributeError:
        # The compiler traces the creation of this function, so the object doesn't exist yet.
        return False
    return torch.compiler.is_dynamo_compiling() or not any(_is_traced(c.cell_contents) for c in cells or ())


def _packed_object(x: Any, into: Packed) -> str:
    kind = type(x)
    name = OWN[kind] if kind in OWN else f"={_name(kind)}"
    if isinstance(x, JOINS):
        return _joined(f'"{name}"', list(x.parts), into)
    if isinstance(x, Documents):
        return _joined(f'"{name}"', [x.ids], into)
    return _joined(f'"{name}"', [getattr(x, each) for each in (_fields(kind) or "").split()], into)


def _joined(head: str, parts: list[Any], into: Packed) -> str:
    form = "[" + head
    for part in parts:
        form = form + "," + pack(part, into)
    return form + "]"


def _is_traced(x: object) -> bool:
    return isinstance(x, Tensor) and type(x) not in (Tensor, torch.nn.Parameter)


def _constant(function: Answer) -> Answer:
    """The same as `torch.compiler.assume_constant_result`, without importing the compiler."""
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


@_constant
def _fields(kind: type) -> str | None:
    """The names of a dataclass' fields, as one string; None if objects cannot be rebuilt from them."""
    if not is_dataclass(kind):
        return None
    if kind in (*JOINS, Documents):
        return ""
    found = fields(kind)
    return " ".join(each.name for each in found) if all(each.init for each in found) else None


@_constant
def _name(x: Any) -> str:
    """The key of an object for `_named`: its module and name, or its number in this process."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if module is not None and name is not None and module != "__main__" and _found(module, name) is x:
        return f"{module}:{name}"
    for number, known in enumerate(_unnamed):
        if known is x:
            return f"{PROCESS}#{number}"
    _unnamed.append(x)
    return f"{PROCESS}#{len(_unnamed) - 1}"


def _found(module: str, name: str) -> Any:
    here = sys.modules.get(module)
    for part in name.split("."):
        here = getattr(here, part, None)
    return here


def unpack(form: str, packed: Packed) -> Any:
    """Rebuild a packed object.

    >>> packed = Packed()
    >>> unpack(pack(masks.Window(4), packed), packed)
    Window(left=4)
    """
    parts = iter(packed.numbers), iter(packed.reals), iter(packed.tensors)
    return _unpacked(_parsed(form), *parts)


@lru_cache(maxsize=256)
def _parsed(form: str) -> Any:
    return json.loads(form)


def _unpacked(form: Any, numbers: Iterator[int], reals: Iterator[float], tensors: Iterator[Tensor]) -> Any:
    if isinstance(form, str):
        atoms: dict[str, Callable[[], Any]] = {
            "none": lambda: None,
            "true": lambda: True,
            "false": lambda: False,
            "i": lambda: next(numbers),
            "f": lambda: next(reals),
            "t": lambda: next(tensors),
        }
        return atoms[form]() if form in atoms else _named(form[1:])
    head, *rest = form
    parts = [_unpacked(part, numbers, reals, tensors) for part in rest]
    if head == "tuple":
        return tuple(parts)
    if head == "range":
        return range(*parts)
    return _made(KINDS[head] if head in KINDS else _named(head[1:]), parts)


def _made(kind: Any, parts: Sequence[Any]) -> Any:
    if kind in JOINS:
        return kind(*parts)
    if kind is Documents:
        return Documents(ids=parts[0])
    return kind(**dict(zip((_fields(kind) or "").split(), parts, strict=True)))


def _named(name: str) -> Any:
    """The object of a key that `_name` returned."""
    process, _, number = name.partition("#")
    if process == PROCESS:
        return _unnamed[int(number)]
    module, _, qualname = name.partition(":")
    if not number:
        __import__(module)
        found = _found(module, qualname)
        if found is not None:
            return found
    raise BackendError(
        f"this exported program calls a function or class of the process that exported it ({name}); define "
        "it at the top of a module that can be imported, and export again."
    )
