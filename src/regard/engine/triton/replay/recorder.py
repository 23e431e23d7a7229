"""Listening to a call: what it asks of the device, with slots in the place of what every call has anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = [
    "METADATA",
    "DescriptorTemplate",
    "KernelStart",
    "ObjectTemplate",
    "Recorder",
    "Slot",
    "TorchCall",
    "function_name",
    "is_recordable",
    "same_template",
    "slot_numbers",
]

# What may be asked of a tensor without reading what is in it.
METADATA = {
    "data_ptr", "device", "dim", "dtype", "element_size", "is_contiguous", "is_cuda", "is_floating_point",
    "is_inference", "itemsize", "ndim", "numel", "requires_grad", "shape", "size", "stride", "_version",
    "__len__", "_set_grad_enabled",
}  # fmt: skip
# What makes tensors of tensors, of a shape that does not depend on what is in them.
RECORDABLE = {
    "add", "add_", "amax", "arange", "clamp", "clamp_", "clone", "contiguous", "copy_", "cumsum", "detach",
    "div", "div_", "empty", "empty_like", "exp", "expand", "flatten", "flip", "full", "long", "masked_fill",
    "max", "maximum", "minimum", "mul", "mul_", "nan_to_num", "neg", "new_empty", "new_full", "new_zeros",
    "pad", "permute", "repeat_interleave", "reshape", "select", "split", "split_with_sizes", "squeeze",
    "stack", "sub", "sub_", "sum", "tensor", "to", "transpose", "true_divide", "unbind", "unflatten",
    "unsqueeze", "view", "zero_", "zeros", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention", "__add__", "__eq__", "__ge__", "__getitem__", "__gt__",
    "__iadd__", "__isub__", "__itruediv__", "__le__", "__lt__", "__mul__", "__ne__", "__rsub__",
    "__setitem__", "__sub__", "__truediv__",
}  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor that each call has anew."""

    number: int


@dataclass(frozen=True)
class DescriptorTemplate:
    """Stands for a descriptor of such a tensor."""

    slot: Slot
    kind: type
    rest: dict[str, Any]


@dataclass(frozen=True)
class ObjectTemplate:
    """Stands for an object that has such tensors among its fields."""

    kind: type
    parts: list[Any]


@dataclass(frozen=True)
class KernelStart:
    """A kernel that was started."""

    run: Callable[..., Any]
    grid: tuple[int, ...]
    given: list[Any]


@dataclass(frozen=True)
class TorchCall:
    """Something that was done to tensors, and the slots of what came out, one or several."""

    run: Callable[..., Any]
    given: list[Any]
    named: dict[str, Any]
    found: list[Slot | None]
    several: bool


class Recorder(TorchFunctionMode):
    """Listens to one call.

    Tensors that are neither its inputs nor made by it are taken for constants: those of two calls must be the
    same_template.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.slots: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        for number, x in enumerate(inputs):
            self.slots.setdefault(x, Slot(number))
        self.count = len(inputs)
        self.steps: list[KernelStart | TorchCall] = []
        self.result: Any = None
        self.replayable = True

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if is_recordable(func, args):
            self._note(func, args, kwargs or {}, result)
        elif function_name(func) not in METADATA:
            self.replayable = False
        return result

    def started(self, run: Callable[..., None], grid: tuple[int, ...], values: Sequence[Any]) -> None:
        """A kernel was started."""
        self.steps.append(KernelStart(run, grid, self.template(list(values))))

    def template(self, x: Any) -> Any:
        """An argument or a result with slots in the place of what each call has anew."""
        if isinstance(x, Tensor):
            return self.slots.get(x, x)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return ObjectTemplate(type(x), [self.template(part) for part in x])
        if isinstance(x, list | tuple):
            return type(x)([self.template(part) for part in x])
        if isinstance(x, dict):
            return {name: self.template(part) for name, part in x.items()}
        if hasattr(x, "block_shape"):
            rest = {name: part for name, part in x.__dict__.items() if name != "base"}
            slot = self.template(x.base)
            return DescriptorTemplate(slot, type(x), rest) if isinstance(slot, Slot) else x
        if is_dataclass(x) and not isinstance(x, type):
            return ObjectTemplate(type(x), [self.template(getattr(x, part.name)) for part in fields(x)])
        return x

    def _note(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        given, named = self.template(list(args)), self.template(kwargs)
        several = isinstance(result, list | tuple)
        found = [self._slot(x) if isinstance(x, Tensor) else None for x in (result if several else [result])]
        self.steps.append(TorchCall(func, given, named, found, several))

    def _slot(self, x: Tensor) -> Slot:
        slot = self.slots.get(x)
        if slot is None:
            slot = self.slots[x] = Slot(self.count)
            self.count += 1
        return slot


def is_recordable(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether a function makes tensors of tensors, whatever is in them."""
    name = function_name(func)
    return name in RECORDABLE and not _is_choice(name, args)


def function_name(func: Callable[..., Any]) -> str:
    """The name of a function as a mode hears of it; of what is read of a tensor, that one's."""
    name = getattr(func, "__name__", "")
    return func.__self__.__name__ if name == "__get__" else name  # pyright: ignore[reportFunctionMemberAccess]


def _is_choice(name: str, args: Sequence[Any]) -> bool:
    """Whether tensors say which elements are taken: then a shape may depend on what is in them."""
    return name in ("__getitem__", "__setitem__") and any(
        isinstance(x, Tensor) for x in (args[1] if isinstance(args[1], tuple) else args[1:2])
    )


def slot_numbers(x: Any) -> Iterator[int]:
    """The slot_numbers of the slots in a template."""
    if isinstance(x, Slot):
        yield x.number
    elif isinstance(x, DescriptorTemplate):
        yield x.slot.number
    elif isinstance(x, ObjectTemplate):
        yield from slot_numbers(x.parts)
    elif isinstance(x, KernelStart):
        yield from slot_numbers(x.given)
    elif isinstance(x, TorchCall):
        yield from slot_numbers([x.given, x.named, x.found])
    elif isinstance(x, list | tuple):
        for part in x:
            yield from slot_numbers(part)
    elif isinstance(x, dict):
        yield from slot_numbers([*x.values()])


def same_template(a: Any, b: Any) -> bool:
    """Whether two sketches are of the same_template thing: the same_template slots, the very same_template
    tensors, equal slot_numbers."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a is b
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_template, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_template(a[name], b[name]) for name in a)
    if isinstance(a, KernelStart | TorchCall | DescriptorTemplate | ObjectTemplate):
        return all(same_template(getattr(a, part.name), getattr(b, part.name)) for part in fields(a))
    return bool(a == b)
