"""Recorded values with slots in place of the tensors that change from call to call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "Allocation",
    "DescriptorTemplate",
    "KernelStart",
    "ObjectTemplate",
    "Slot",
    "Step",
    "TorchCall",
    "builder",
    "same_template",
    "slot_numbers",
]


@dataclass(frozen=True)
class Slot:
    """The place of an input, or of a tensor that every call creates."""

    number: int


@dataclass(frozen=True)
class DescriptorTemplate:
    """A TMA descriptor of the tensor in a slot; `rest` are its other fields."""

    slot: Slot
    kind: type
    rest: dict[str, Any]


@dataclass(frozen=True)
class ObjectTemplate:
    """A named tuple or dataclass, by its class and fields."""

    kind: type
    parts: list[Any]


@dataclass(frozen=True)
class KernelStart:
    """One kernel launch: the kernel, its launcher, its grid and its arguments."""

    kernel: Any
    run: Callable[..., Any]
    grid: tuple[int, ...]
    given: list[Any]
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        return getattr(getattr(self.kernel, "fn", None), "__name__", "")

    def value(self, name: str) -> Any:
        """The argument of a name."""
        return self.given[self.names.index(name)]


@dataclass(frozen=True)
class Allocation:
    """A call that returned a new tensor, full of zeros or uninitialised."""

    slot: Slot
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    zeroed: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class TorchCall:
    """One torch call: the function, its arguments, and the slots of its result or results."""

    run: Callable[..., Any]
    given: list[Any]
    named: dict[str, Any]
    outputs: list[Slot | None]
    several: bool


Step = Allocation | KernelStart | TorchCall


def slot_numbers(x: Any) -> Iterator[int]:
    """The numbers of the slots in a template."""
    if isinstance(x, Slot):
        yield x.number
    elif isinstance(x, DescriptorTemplate | Allocation):
        yield x.slot.number
    elif isinstance(x, ObjectTemplate):
        yield from slot_numbers(x.parts)
    elif isinstance(x, KernelStart):
        yield from slot_numbers(x.given)
    elif isinstance(x, TorchCall):
        yield from slot_numbers([x.given, x.named, x.outputs])
    elif isinstance(x, list | tuple):
        for part in x:
            yield from slot_numbers(part)
    elif isinstance(x, dict):
        yield from slot_numbers([*x.values()])


def same_template(a: Any, b: Any) -> bool:
    """Whether two templates are equal: same slots, identical tensors, equal numbers."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a is b
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_template, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_template(a[name], b[name]) for name in a)
    if isinstance(a, KernelStart) and a.kernel is not b.kernel:
        return False
    if isinstance(a, Allocation | KernelStart | TorchCall | DescriptorTemplate | ObjectTemplate):
        return all(same_template(getattr(a, part.name), getattr(b, part.name)) for part in fields(a))
    return bool(a == b)


def builder(x: Any) -> Callable[[list[Any]], Any]:
    """Return a function that rebuilds the recorded value from the slots."""
    if isinstance(x, Slot):
        return itemgetter(x.number)
    if isinstance(x, DescriptorTemplate):
        return partial(_descriptor, x.kind, x.rest, x.slot.number)
    if _is_fixed(x):
        return lambda slots: x
    if isinstance(x, ObjectTemplate):
        return _object_builder(x)
    if isinstance(x, list | tuple):
        kind, parts = type(x), [builder(part) for part in x]
        return lambda slots: kind([part(slots) for part in parts])
    if isinstance(x, dict):
        named = [(name, builder(part)) for name, part in x.items()]
        return lambda slots: {name: part(slots) for name, part in named}
    return lambda slots: x


def _is_fixed(x: Any) -> bool:
    """Whether a template always stands for the same immutable value."""
    if isinstance(x, tuple):
        return all(map(_is_fixed, x))
    mutable = isinstance(x, Slot | DescriptorTemplate | ObjectTemplate | list | dict)
    return not mutable


def _object_builder(x: ObjectTemplate) -> Callable[[list[Any]], Any]:
    kind, parts = x.kind, [builder(part) for part in x.parts]
    parameters = vars(kind).get("__dataclass_params__")
    if not is_dataclass(kind) or not parameters or not parameters.frozen or hasattr(kind, "__post_init__"):
        return lambda slots: kind(*[part(slots) for part in parts])
    # Assigning the fields of a frozen dataclass one by one takes longer than all else here.
    names = [each.name for each in fields(kind)]
    known = {name: part if _is_fixed(part) else None for name, part in zip(names, x.parts, strict=True)}
    changing = [
        (name, make) for name, make, part in zip(names, parts, x.parts, strict=True) if not _is_fixed(part)
    ]

    def build(slots: list[Any]) -> Any:
        made = object.__new__(kind)
        own = made.__dict__
        own.update(known)
        for name, make in changing:
            own[name] = make(slots)
        return made

    return build


def _descriptor(kind: type, rest: dict[str, Any], number: int, slots: list[Any]) -> Any:
    """A descriptor of the tensor in a slot, unchecked: the checks passed when it was recorded."""
    made = object.__new__(kind)
    made.__dict__.update(rest, base=slots[number])
    return made
