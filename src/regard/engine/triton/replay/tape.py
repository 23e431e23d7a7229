"""Replays a recorded call with other inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.engine.triton.replay.growth import Growing, Lengths
from regard.engine.triton.replay.recorder import Recorder
from regard.engine.triton.replay.templates import (
    Allocation,
    DescriptorTemplate,
    KernelStart,
    Slot,
    Step,
    builder,
    slot_numbers,
)

__all__ = ["Tape"]

Run = Callable[[list[Any]], None]

# Bytes of the buffers in an arena, and what their addresses are multiples of.
ARENA_BYTES, ALIGNMENT = 1 << 22, 256


class Tape:
    """A recorded call as a list of steps that can be run with other inputs."""

    def __init__(self, inputs: int, recording: Recorder, growing: Sequence[Growing] | None = None) -> None:
        """`growing` says which parts depend on the lengths that `play` is given."""
        self.empty = [None] * (recording.count - inputs)
        self.result = builder(recording.result)
        last = {number: index for index, step in enumerate(recording.steps) for number in slot_numbers(step)}
        kept = {*slot_numbers(recording.result), *range(inputs)}
        unused: list[list[int]] = [[] for _ in recording.steps]
        for number, index in last.items():
            if number not in kept:
                unused[index].append(number)
        self.steps: list[Run] = []
        parts = growing or [Growing()] * len(recording.steps)
        arena = Arena(recording.steps, parts, kept)
        if arena.places:
            self.steps.append(arena.allocate)
        for step, part, numbers in zip(recording.steps, parts, unused, strict=True):
            if isinstance(step, Allocation) and step.slot.number in arena.places:
                continue
            self.steps.append(_runner(step, part, arena.places.keys()))
            freed = [number for number in numbers if number not in arena.places]
            if freed:
                self.steps.append(partial(_free, freed))

    def play(self, inputs: Sequence[Tensor], lengths: Lengths | None = None) -> Any:
        # No slots are the last two: the room of the arena, and the lengths.
        slots = [*inputs, *self.empty, None, lengths]
        for step in self.steps:
            step(slots)
        return self.result(slots)


def _free(numbers: list[int], slots: list[Any]) -> None:
    """Free tensors after their last use, so that peak memory is that of the plain call."""
    for number in numbers:
        slots[number] = None


def _runner(step: Step, growing: Growing, addresses: Collection[int]) -> Run:
    """Return a function that runs one step, given the slots and the lengths; some slots hold `addresses`."""
    if isinstance(step, Allocation):
        return _allocator(step) if growing.size is None else _growing_allocator(step, growing.size)
    if isinstance(step, KernelStart):
        return _starter(step, growing, addresses)
    run, arguments, slot_arguments = step.run, step.given, _slot_places(step.given)
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


def _allocator(step: Allocation) -> Run:
    number, shape, stride, dtype, device = step.slot.number, step.shape, step.stride, step.dtype, step.device
    new = torch.zeros if step.zeroed else torch.empty

    def allocate(slots: list[Any]) -> None:
        slots[number] = new(shape, dtype=dtype, device=device)

    def allocate_strided(slots: list[Any]) -> None:
        made = slots[number] = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        if zeroed:
            made.zero_()

    zeroed, contiguous = step.zeroed, torch.empty(shape, device="meta").stride() == stride
    return allocate if contiguous else allocate_strided


def _growing_allocator(step: Allocation, size: str) -> Run:
    number, shape, dtype, device = step.slot.number, step.shape[:-1], step.dtype, step.device
    new = torch.zeros if step.zeroed else torch.empty

    def allocate(slots: list[Any]) -> None:
        slots[number] = new((*shape, slots[-1][size]), dtype=dtype, device=device)

    return allocate


def _starter(step: KernelStart, growing: Growing, addresses: Collection[int]) -> Run:
    """Start a kernel, with addresses in place of tensors if possible: so the launcher doesn't look them up.

    Addresses of constants are computed once; `step` keeps these tensors alive.
    """
    first_size = growing.grid
    by_address = getattr(step.run, "by_address", False)
    known = [_address(x) if by_address else x for x in step.given]
    grows = dict(growing.arguments)
    in_slots: dict[int, list[int]] = {}
    others: list[tuple[int, Any]] = []
    for i, x in _slot_places(step.given):
        if type(x) is int:
            in_slots.setdefault(x, []).append(i)
        else:
            others.append((i, _growing_descriptor(step.given[i], grows.pop(i)) if i in grows else x))
    places = [(number, indices) for number, indices in in_slots.items() if number not in addresses]
    in_arena = [(number, i) for number, indices in in_slots.items() if number in addresses for i in indices]
    lengths = list(grows.items())

    def start(slots: list[Any]) -> None:
        values = known.copy()
        for number, indices in places:
            x = slots[number]
            x = x.data_ptr() if by_address else x
            for i in indices:
                values[i] = x
        for number, i in in_arena:
            values[i] = slots[number]
        for i, build in others:
            values[i] = build(slots)
        if not lengths:
            step.run(step.grid, values)
            return
        now = slots[-1]
        for i, name in lengths:
            x = now[name]
            values[i] = x.data_ptr() if by_address and isinstance(x, Tensor) else x
        step.run(step.grid if first_size is None else (now[first_size], *step.grid[1:]), values)

    return start


def _address(x: Any) -> Any:
    return x.data_ptr() if isinstance(x, Tensor) else x


def _growing_descriptor(x: DescriptorTemplate, name: str) -> Callable[[list[Any]], Any]:
    kind, rest, number = x.kind, x.rest, x.slot.number

    def build(slots: list[Any]) -> Any:
        shape, strides = slots[-1][name]
        made = object.__new__(kind)
        made.__dict__.update(rest, base=slots[number], shape=shape, strides=strides)
        return made

    return build


class Arena:
    """Small buffers that only kernels read and write, in one allocation: a step gets their addresses.

    Most of the time of a short call is spent on making tensors. Other steps free a buffer after its last use,
    so the buffers in an arena, which live until the call ends, must be small.
    """

    def __init__(self, steps: Sequence[Step], growing: Sequence[Growing], kept: Collection[int]) -> None:
        some = [
            step
            for step, part in zip(steps, growing, strict=True)
            if isinstance(step, Allocation) and part.size is None and step.nbytes <= ARENA_BYTES
        ]
        seen = {*kept, *(number for step in steps for number in _read_as_tensors(step))}
        some = [step for step in some if step.slot.number not in seen and step.device == some[0].device]
        # Zeros come first, so that one fill clears all of them.
        some.sort(key=lambda step: not step.zeroed)
        self.places: dict[int, int] = {}
        self.size = self.zeroed = 0
        for step in some:
            size = -(-step.nbytes // ALIGNMENT) * ALIGNMENT
            if self.size + size > ARENA_BYTES:
                continue
            self.places[step.slot.number] = self.size
            self.size += size
            self.zeroed += size if step.zeroed else 0
        self.device = some[0].device if some else None

    def allocate(self, slots: list[Any]) -> None:
        """Put the addresses of all buffers into their slots."""
        room = torch.empty(self.size, dtype=torch.uint8, device=self.device)
        if self.zeroed:
            (room if self.zeroed == self.size else room[: self.zeroed]).zero_()
        base = room.data_ptr()
        for number, place in self.places.items():
            slots[number] = base + place
        slots[-2] = room


def _read_as_tensors(step: Step) -> Iterator[int]:
    """The slots that a step needs as tensors, not as addresses."""
    if isinstance(step, KernelStart) and getattr(step.run, "by_address", False):
        yield from slot_numbers([x for x in step.given if not isinstance(x, Slot)])
    elif not isinstance(step, Allocation):
        yield from slot_numbers(step)


def _slot_places(values: list[Any]) -> list[tuple[int, Any]]:
    """Index and slot number, or index and builder, of each argument that contains a slot."""
    some = [(i, x) for i, x in enumerate(values) if next(slot_numbers(x), None) is not None]
    return [(i, x.number if isinstance(x, Slot) else builder(x)) for i, x in some]


def _with_slots(values: list[Any], slot_arguments: list[tuple[int, Any]], slots: list[Any]) -> list[Any]:
    arguments = values.copy()
    for i, x in slot_arguments:
        arguments[i] = slots[x] if type(x) is int else x(slots)
    return arguments
