"""Records the torch calls and kernel launches of one call, as templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from regard.engine.triton.launch.start import argument_names
from regard.engine.triton.launch.torch_functions import METADATA, function_name, is_recordable
from regard.engine.triton.replay.templates import (
    Allocation,
    DescriptorTemplate,
    KernelStart,
    ObjectTemplate,
    Slot,
    Step,
    TorchCall,
)

__all__ = ["Recorder"]

ALLOCATING = ("empty", "empty_like", "new_empty", "new_zeros", "zeros", "zeros_like")
# Their arguments that only say what the new tensor is like.
LIKE = {"device", "dtype", "memory_format", "size"}
# Functions that return their argument if nothing has to be done; none of them writes to it.
RETURNING = ("contiguous", "long", "to")


class Recorder(TorchFunctionMode):
    """Records the torch calls and kernel launches of one call.

    A tensor that is neither an input nor made by the call is a constant: it must be the same object in both
    recordings.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.slots: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        for number, x in enumerate(inputs):
            self.slots.setdefault(x, Slot(number))
        self.count = len(inputs)
        self.steps: list[Step] = []
        self.result: Any = None
        self.replayable = True

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = function_name(func)
        if name in ALLOCATING and (kwargs or {}).keys() <= LIKE:
            about = (tuple(result.shape), result.stride(), result.dtype, result.device)
            self.steps.append(Allocation(self._slot(result), *about, zeroed="zeros" in name))
        elif name in RETURNING and result is args[0]:
            # Nothing had to be converted or copied.
            pass
        elif is_recordable(func, args):
            self._record_torch_call(func, args, kwargs or {}, result)
        elif name not in METADATA:
            self.replayable = False
        return result

    def started(
        self, kernel: Any, run: Callable[..., None], grid: tuple[int, ...], values: Sequence[Any]
    ) -> None:
        """Record a kernel launch; `start` calls this after each."""
        given = self.template(list(values))
        self.steps.append(KernelStart(kernel, run, grid, given, argument_names(kernel, run)))

    def template(self, x: Any) -> Any:
        """An argument or result, with slots in place of inputs and of tensors that the call creates."""
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

    def _record_torch_call(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        given, named = self.template(list(args)), self.template(kwargs)
        several = isinstance(result, list | tuple)
        results = result if several else [result]
        outputs = [self._slot(x) if isinstance(x, Tensor) else None for x in results]
        self.steps.append(TorchCall(func, given, named, outputs, several))

    def _slot(self, x: Tensor) -> Slot:
        slot = self.slots.get(x)
        if slot is None:
            slot = self.slots[x] = Slot(self.count)
            self.count += 1
        return slot
