"""Calls that come again: what they ask of the device is asked once more, without a thought.

Between `observe` and the device lies a lot of Python: what the mask says, which kernels there are, how they
are cut. For short texts that takes several times as long as the device does. But with the same shapes, mask
and statistics it all comes down to the same few tensors and kernels. So the second and the third call of a
kind are recorded, and if both asked for the same, all that follow are played from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from regard.engine.triton.starting import listening

__all__ = ["forget", "replayed"]

Result = TypeVar("Result")

# Kinds of calls that are remembered, and how many more of which only a number is: a kind holds on to its
# mask, and some come once. The oldest go first.
MOST, MOST_NUMBERS = 64, 1024
# What may be asked of a tensor without reading what is in it.
ABOUT = {
    "data_ptr", "device", "dim", "dtype", "element_size", "is_contiguous", "is_cuda", "is_floating_point",
    "is_inference", "itemsize", "ndim", "numel", "requires_grad", "shape", "size", "stride", "_version",
    "__len__", "_set_grad_enabled",
}  # fmt: skip
# What makes tensors of tensors, of a shape that does not depend on what is in them.
DONE = {
    "add", "add_", "amax", "arange", "clamp", "clone", "contiguous", "copy_", "cumsum", "detach", "div",
    "div_", "empty", "exp", "expand", "flatten", "flip", "full", "long", "masked_fill", "max", "maximum",
    "minimum", "mul", "mul_", "new_empty", "new_full", "new_zeros", "pad", "permute", "repeat_interleave",
    "reshape", "select", "split", "squeeze", "stack", "sub", "sub_", "sum", "tensor", "to", "transpose",
    "true_divide", "unbind", "unflatten", "unsqueeze", "view", "zero_", "zeros",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention", "__add__", "__eq__",
    "__ge__", "__getitem__", "__gt__", "__iadd__", "__isub__", "__itruediv__", "__le__", "__lt__",
    "__mul__", "__ne__", "__rsub__", "__setitem__", "__sub__", "__truediv__",
}  # fmt: skip


def replayed(kind: Hashable | None, inputs: Sequence[Tensor], call: Callable[[], Result]) -> Result:
    """What `call` returns, which depends on nothing but the kind of call and its inputs.

    None is no kind: such a call is made as it is.
    """
    if kind is None:
        return call()
    # Of a tensor that comes twice the record could not say which one is meant.
    names = [id(x) for x in inputs]
    kind = (kind, *(names.index(name) for name in names))
    history = _known.get(kind)
    if history is None:
        if hash(kind) not in _numbers_seen:
            _make_room(_numbers_seen, MOST_NUMBERS)
            _numbers_seen[hash(kind)] = None
            return call()
        _make_room(_known, MOST)
        history = _known[kind] = _History()
    if history.tape is not None:
        return history.tape.play(inputs)
    return history.call(inputs, call)


def forget() -> None:
    """Every kind of call is new again."""
    _known.clear()
    _numbers_seen.clear()


def _make_room(known: dict[Any, Any], most: int) -> None:
    while len(known) >= most:
        del known[next(iter(known))]


@dataclass
class _History:
    """What is known of one kind of call."""

    tape: _Tape | None = None
    heard: _Recorder | None = None
    hopeless: bool = False

    def call(self, inputs: Sequence[Tensor], call: Callable[[], Any]) -> Any:
        """Make a call, and record it if that may lead to something."""
        if self.hopeless:
            return call()
        before, heard = self.heard, _Recorder(inputs)
        with heard:
            listening.to = heard
            try:
                result = call()
            finally:
                listening.to = None
        heard.result = heard.sketch(result)
        if not heard.fit or (before is not None and not _same(before.steps, heard.steps)):
            self.hopeless, self.heard = True, None
        elif before is None or not _same(before.result, heard.result):
            self.heard = heard
        else:
            self.tape, self.heard = _Tape(len(inputs), heard), None
        return result


_known: dict[Hashable, _History] = {}
_numbers_seen: dict[int, None] = {}


@dataclass(frozen=True)
class _Slot:
    """Stands for a tensor that each call has anew."""

    number: int


@dataclass(frozen=True)
class _Boxes:
    """Stands for a descriptor of such a tensor."""

    slot: _Slot
    kind: type
    rest: dict[str, Any]


@dataclass(frozen=True)
class _Made:
    """Stands for an object that has such tensors among its fields."""

    kind: type
    parts: list[Any]


@dataclass(frozen=True)
class _Start:
    """A kernel that was started."""

    run: Callable[..., Any]
    grid: tuple[int, ...]
    given: list[Any]


@dataclass(frozen=True)
class _Step:
    """Something that was done to tensors, and the slots of what came out, one or several."""

    run: Callable[..., Any]
    given: list[Any]
    named: dict[str, Any]
    found: list[_Slot | None]
    several: bool


class _Recorder(TorchFunctionMode):
    """Listens to one call.

    Tensors that are neither its inputs nor made by it are taken for constants: those of two calls must be the
    same.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.slots: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        for number, x in enumerate(inputs):
            self.slots.setdefault(x, _Slot(number))
        self.count = len(inputs)
        self.steps: list[_Start | _Step] = []
        self.result: Any = None
        self.fit = True

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = func.__self__.__name__
        if name in DONE and not _is_choice(name, args):
            self._note(func, args, kwargs or {}, result)
        elif name not in ABOUT:
            self.fit = False
        return result

    def started(self, run: Callable[..., None], grid: tuple[int, ...], values: Sequence[Any]) -> None:
        """A kernel was started."""
        self.steps.append(_Start(run, grid, self.sketch(list(values))))

    def sketch(self, x: Any) -> Any:
        """An argument or a result with slots in the place of what each call has anew."""
        if isinstance(x, Tensor):
            return self.slots.get(x, x)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return _Made(type(x), [self.sketch(part) for part in x])
        if isinstance(x, list | tuple):
            return type(x)([self.sketch(part) for part in x])
        if isinstance(x, dict):
            return {name: self.sketch(part) for name, part in x.items()}
        if hasattr(x, "block_shape"):
            rest = {name: part for name, part in x.__dict__.items() if name != "base"}
            slot = self.sketch(x.base)
            return _Boxes(slot, type(x), rest) if isinstance(slot, _Slot) else x
        if is_dataclass(x) and not isinstance(x, type):
            return _Made(type(x), [self.sketch(getattr(x, part.name)) for part in fields(x)])
        return x

    def _note(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        given, named = self.sketch(list(args)), self.sketch(kwargs)
        several = isinstance(result, list | tuple)
        found = [self._slot(x) if isinstance(x, Tensor) else None for x in (result if several else [result])]
        self.steps.append(_Step(func, given, named, found, several))

    def _slot(self, x: Tensor) -> _Slot:
        slot = self.slots.get(x)
        if slot is None:
            slot = self.slots[x] = _Slot(self.count)
            self.count += 1
        return slot


def _is_choice(name: str, args: Sequence[Any]) -> bool:
    """Whether tensors say which elements are taken: then a shape may depend on what is in them."""
    return name in ("__getitem__", "__setitem__") and any(
        isinstance(x, Tensor) for x in (args[1] if isinstance(args[1], tuple) else args[1:2])
    )


class _Tape:
    """A call as a list of steps, to be taken with other inputs."""

    def __init__(self, inputs: int, heard: _Recorder) -> None:
        self.room = [None] * (heard.count - inputs)
        self.result = heard.result
        last = {number: index for index, step in enumerate(heard.steps) for number in _numbers(step)}
        kept = {*_numbers(heard.result), *range(inputs)}
        unused: list[list[int]] = [[] for _ in heard.steps]
        for number, index in last.items():
            if number not in kept:
                unused[index].append(number)
        self.steps = [_function(step) for step in heard.steps]
        self.unused = unused

    def play(self, inputs: Sequence[Tensor]) -> Any:
        slots = [*inputs, *self.room]
        for step, unused in zip(self.steps, self.unused, strict=True):
            step(slots)
            # What nobody needs any more makes room for what comes next.
            for number in unused:
                slots[number] = None
        return _filled(self.result, slots)


def _function(step: _Start | _Step) -> Callable[[list[Any]], None]:
    """A step as a function of what is in the slots."""
    run, given, holes = step.run, step.given, _holes(step.given)
    if isinstance(step, _Start):
        grid = step.grid
        return lambda slots: run(grid, _with(given, holes, slots))
    named, several = step.named, step.several
    changing = any(True for _ in _numbers(named))
    found = [None if slot is None else slot.number for slot in step.found]
    first = None if several else found[0]

    def do(slots: list[Any]) -> None:
        result = run(*_with(given, holes, slots), **(_filled(named, slots) if changing else named))
        if first is not None:
            slots[first] = result
        elif several:
            for number, x in zip(found, result, strict=True):
                if number is not None:
                    slots[number] = x

    return do


def _holes(values: list[Any]) -> list[tuple[int, Any]]:
    """Which of these have slots in them: where, and the number of the slot or what it is in."""
    some = [(i, x) for i, x in enumerate(values) if next(_numbers(x), None) is not None]
    return [(i, x.number if isinstance(x, _Slot) else x) for i, x in some]


def _with(values: list[Any], holes: list[tuple[int, Any]], slots: list[Any]) -> list[Any]:
    filled = values.copy()
    for i, x in holes:
        filled[i] = slots[x] if type(x) is int else _filled(x, slots)
    return filled


def _filled(x: Any, slots: list[Any]) -> Any:
    """What a sketch is of, with what is in the slots."""
    if isinstance(x, _Slot):
        return slots[x.number]
    if isinstance(x, _Boxes):
        made = object.__new__(x.kind)
        made.__dict__.update(x.rest, base=slots[x.slot.number])
        return made
    if isinstance(x, _Made):
        return x.kind(*[_filled(part, slots) for part in x.parts])
    if isinstance(x, list | tuple):
        return type(x)([_filled(part, slots) for part in x])
    if isinstance(x, dict):
        return {name: _filled(part, slots) for name, part in x.items()}
    return x


def _numbers(x: Any) -> Iterator[int]:
    """The numbers of the slots in a sketch."""
    if isinstance(x, _Slot):
        yield x.number
    elif isinstance(x, _Boxes):
        yield x.slot.number
    elif isinstance(x, _Made):
        yield from _numbers(x.parts)
    elif isinstance(x, _Start):
        yield from _numbers(x.given)
    elif isinstance(x, _Step):
        yield from _numbers([x.given, x.named, x.found])
    elif isinstance(x, list | tuple):
        for part in x:
            yield from _numbers(part)
    elif isinstance(x, dict):
        yield from _numbers([*x.values()])


def _same(a: Any, b: Any) -> bool:
    """Whether two sketches are of the same thing: the same slots, the very same tensors, equal numbers."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a is b
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, _Start | _Step | _Boxes | _Made):
        return all(_same(getattr(a, part.name), getattr(b, part.name)) for part in fields(a))
    return bool(a == b)
