"""Detects writes to the tensors that a map reads."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.captured import Captured
from regard.engine.problem import Problem
from regard.engine.scoring import Scoring
from regard.errors import MapError
from regard.masks import Mask
from regard.memo import KNOWN, is_value, remembered
from regard.scores import Score

__all__ = ["Watch"]

# Fields of a problem that cells don't read, but statistics may.
UNREAD = ("v",)
# The name under which a mask or a scoring knows that it holds no tensors.
BARE = "regard.maps.freshness.bare"
# How deep to follow the attributes of foreign objects.
DEPTH = 6
# Types that hold no tensors.
_PLAIN = {
    *(str, bytes, bool, int, float, complex, range, type(None)),
    *(types.ModuleType, types.BuiltinFunctionType, torch.dtype, torch.device),
}


class Watch:
    """Stores the write counters of all tensors that a problem reads, and detects later writes.

    The tensors are found by walking through the fields of the problem, so new fields are included
    automatically. PyTorch counts writes to a tensor, also under `no_grad`. It doesn't count writes through
    `.data`, nor writes to tensors made in inference mode, so these are not detected.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self._captured = problem, None
        plain = _plain_tensors(problem)
        self._then = {name: (x, _version(x)) for name, x in plain or _tensors(problem)}
        if plain is None and problem.asks:
            self._captured = Captured(problem.scoring, problem.mask, problem.q, problem.k)

    def tensors(self) -> list[Tensor]:
        """The tensors that the problem read when the map was made."""
        return [x for x, _ in self._then.values()]

    def check(self, values: bool = False) -> None:
        """Raise MapError if a tensor has changed; with `values`, also if the values have."""
        now = dict(_tensors(self.problem))
        for name, (then, version) in self._then.items():
            if name in UNREAD and not values:
                continue
            same = now.get(name) is then
            if same and _version(then) == version:
                continue
            what = "changed in place" if same else "replaced by another tensor"
            raise MapError(
                f"{name} was {what} after this map was made, so its cells would be wrong. "
                "Observe again, or make the map from a copy: pass a .clone() of what you will change."
            )
        found = None if self._captured is None else self._captured.changed()
        if found is not None:
            raise MapError(f"{' '.join(found)}, so the cells of this map would be wrong. Observe again.")


def _plain_tensors(problem: Problem) -> list[tuple[str, Tensor]] | None:
    """The same as `_tensors` where only fields of the problem are tensors; None elsewhere.

    For short calls a walk through the mask and the scoring would take longer than the attention.
    """
    if not (_asks_nothing(problem.scoring) and (problem.mask is None or _asks_nothing(problem.mask))):
        return None
    found: list[tuple[str, Tensor]] = []
    for name, value in _attributes(problem):
        if isinstance(value, Tensor):
            found.append((name, value))
        elif type(value) not in _PLAIN and name not in ("mask", "scoring"):
            return None
    return found


def _asks_nothing(part: Mask | Scoring) -> bool:
    """Whether a mask or a scoring is a value without tensors or functions of a user's own."""
    # A short call of a kind that came before has the same mask and scoring, as objects.
    known = vars(part).get(KNOWN)
    if known is None or BARE not in known:
        if not is_value(part):
            return False
        known = vars(part).setdefault(KNOWN, {})
        plain = not isinstance(part, Scoring) or (
            part.score.is_dot and part.bias is None and part.score_mod is None
        )
        known[BARE] = plain and _is_bare(part)
    return known[BARE]


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version


def _tensors(problem: Problem) -> list[tuple[str, Tensor]]:
    """All tensors that a problem reads, by the names that users know."""
    found: list[tuple[str, Tensor]] = []
    seen: set[int] = set()
    parts = [(name, value) for name, value in _attributes(problem) if not _holds_nothing(value)]
    # Name the parts of the scoring as users pass them: bias=, not scoring=.
    if any(name == "scoring" for name, _ in parts):
        parts += _attributes(problem.scoring)
    for name, value in parts:
        if name != "scoring":
            _walk(name, value, found, seen, DEPTH)
    return found


def _holds_nothing(value: Any) -> bool:
    """Whether no tensor is inside a value, as far as that is known without a walk."""
    return type(value) in _PLAIN or (not isinstance(value, Tensor) and _is_bare(value))


@remembered(64)
def _is_bare(value: Any) -> bool:
    found: list[tuple[str, Tensor]] = []
    if is_value(value):
        _walk("", value, found, set(), DEPTH)
    return is_value(value) and not found


def _walk(name: str, value: Any, found: list[tuple[str, Tensor]], seen: set[int], depth: int) -> None:
    """Add the tensors inside a value, recursively."""
    if type(value) in _PLAIN or isinstance(value, type) or not depth or id(value) in seen:
        return
    if isinstance(value, Tensor):
        found.append((name, value))
        return
    seen.add(id(value))
    for part, held in _parts(name, value):
        _walk(part, held, found, seen, depth - 1)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Score):
        # Skip tensors that only `prepare` reads: the problem holds its result.
        names = {id(x): f"{name}.{at}" for at, x in _attributes(value)}
        for number, x in enumerate(value.parameters()):
            yield names.get(id(x), f"{name}.parameters()[{number}]"), x
    elif isinstance(value, torch.nn.Module):
        for at, x in (*value.named_parameters(), *value.named_buffers()):
            yield f"{name}.{at}", x
    elif isinstance(value, Mapping):
        for key, x in value.items():
            yield f"{name}[{key!r}]", x
    elif isinstance(value, list | tuple | set | frozenset):
        for number, x in enumerate(value):
            yield f"{name}[{number}]", x
    elif isinstance(value, types.MethodType):
        yield name, value.__self__
    elif isinstance(value, functools.partial):
        yield name, value.func
        for at, x in (*enumerate(value.args), *value.keywords.items()):
            yield f"{at}, which {name} reads,", x
    elif inspect.isfunction(value):
        for at, x in _captured(value):
            yield f"{at}, which {name} reads,", x
    else:
        for at, x in _attributes(value):
            yield f"{name}.{at}", x


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass, or the attributes of another object."""
    names = _field_names(type(value))
    if names is None:
        return list(getattr(value, "__dict__", {}).items())
    return [(name, getattr(value, name)) for name in names]


@functools.cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def _captured(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The values that a function captures: closure, globals and defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the variable has no value yet
            yield name, cell.cell_contents
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for at, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield at, parameter.default


@functools.cache
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals that a function reads, including nested functions."""
    own = [each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"]
    inner = [name for x in code.co_consts if isinstance(x, types.CodeType) for name in _global_names(x)]
    return tuple(dict.fromkeys([*own, *inner]))
