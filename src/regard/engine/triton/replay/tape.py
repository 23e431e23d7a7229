"""Replays a recorded call with other inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.engine.triton.replay.recorder import Recorder
from regard.engine.triton.replay.templates import KernelStart, Slot, TorchCall, builder, slot_numbers

__all__ = ["Tape"]


class Tape:
    """A recorded call as a list of steps that can be run with other inputs."""

    def __init__(self, inputs: int, recording: Recorder) -> None:
        self.empty = [None] * (recording.count - inputs)
        self.result = builder(recording.result)
        last = {number: index for index, step in enumerate(recording.steps) for number in slot_numbers(step)}
        kept = {*slot_numbers(recording.result), *range(inputs)}
        unused: list[list[int]] = [[] for _ in recording.steps]
        for number, index in last.items():
            if number not in kept:
                unused[index].append(number)
        self.steps = [_runner(step) for step in recording.steps]
        self.unused = unused

    def play(self, inputs: Sequence[Tensor]) -> Any:
        slots = [*inputs, *self.empty]
        for step, unused in zip(self.steps, self.unused, strict=True):
            step(slots)
            # Free tensors after their last use, so that peak memory is that of the plain call.
            for number in unused:
                slots[number] = None
        return self.result(slots)


def _runner(step: KernelStart | TorchCall) -> Callable[[list[Any]], None]:
    """Return a function that runs one step, given the slots."""
    run, arguments, slot_arguments = step.run, step.given, _slot_places(step.given)
    if isinstance(step, KernelStart):
        grid = step.grid
        if getattr(run, "by_address", False):
            return _ByAddress(
                step, [x.data_ptr() if isinstance(x, Tensor) else x for x in arguments], slot_arguments
            )
        return lambda slots: run(grid, _with_slots(arguments, slot_arguments, slots))
    named, several = step.named, step.several
    fill = builder(named) if any(True for _ in slot_numbers(named)) else None
    outputs = [None if slot is None else slot.number for slot in step.outputs]
    only = None if several else outputs[0]

    def run_step(slots: list[Any]) -> None:
        result = run(
            *_with_slots(arguments, slot_arguments, slots), **(named if fill is None else fill(slots))
        )
        if only is not None:
            slots[only] = result
        elif several:
            for number, x in zip(outputs, result, strict=True):
                if number is not None:
                    slots[number] = x

    return run_step


@dataclass(frozen=True)
class _ByAddress:
    """Start a kernel with addresses in place of tensors, so the launcher doesn't look them up.

    Addresses of constants are computed once; `step` keeps those tensors alive.
    """

    step: KernelStart
    known: list[Any]
    slot_arguments: list[tuple[int, Any]]

    def __call__(self, slots: list[Any]) -> None:
        values = self.known.copy()
        for i, x in self.slot_arguments:
            values[i] = slots[x].data_ptr() if type(x) is int else x(slots)
        self.step.run(self.step.grid, values)


def _slot_places(values: list[Any]) -> list[tuple[int, Any]]:
    """Index and slot number, or index and builder, of each argument that contains a slot."""
    some = [(i, x) for i, x in enumerate(values) if next(slot_numbers(x), None) is not None]
    return [(i, x.number if isinstance(x, Slot) else builder(x)) for i, x in some]


def _with_slots(values: list[Any], slot_arguments: list[tuple[int, Any]], slots: list[Any]) -> list[Any]:
    arguments = values.copy()
    for i, x in slot_arguments:
        arguments[i] = slots[x] if type(x) is int else x(slots)
    return arguments
