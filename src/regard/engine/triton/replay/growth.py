"""Recordings of calls whose length grows: how their steps depend on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.engine.problem import Problem
from regard.engine.triton.replay.templates import (
    Allocation,
    DescriptorTemplate,
    KernelStart,
    Slot,
    Step,
)

__all__ = ["Growing", "Growth", "Lengths", "growing_parts", "grown"]

# What depends on the length of a call, by the name of a kernel's argument: numbers and tables; for a
# descriptor its shape and strides; for a tensor that the call allocates its last size.
Lengths = dict[str, Any]


class Growth(ABC):
    """Which parts of a call's steps depend on its length, and how."""

    @abstractmethod
    def lengths(self, problem: Problem) -> Lengths | None:
        """The values of these parts for a problem; None if it doesn't grow in this way."""

    @abstractmethod
    def arguments(self, step: KernelStart) -> tuple[str, ...] | None:
        """The arguments of a launch that depend on the length; None if that isn't known."""

    @abstractmethod
    def grid(self, step: KernelStart) -> str | None:
        """The name of the length that is the first size of a launch's grid, if it is one."""


@dataclass(frozen=True)
class Growing:
    """The parts of a step that depend on the length: arguments, by index and name; the first size of a grid;
    the last size of an allocated tensor."""

    arguments: tuple[tuple[int, str], ...] = ()
    grid: str | None = None
    size: str | None = None


def growing_parts(steps: Sequence[Step], growth: Growth) -> list[Growing] | None:
    """For each step the parts that depend on the length; None if that isn't known for one of them."""
    sizes: dict[int, str] = {}
    found: list[Growing] = []
    for step in steps:
        if not isinstance(step, KernelStart):
            found.append(Growing())
            continue
        names = growth.arguments(step)
        if names is None:
            return None
        kept: list[tuple[int, str]] = []
        for name in names:
            i = step.names.index(name)
            x = step.given[i]
            if isinstance(x, Slot):
                # An input has its own shape; what the call allocates is as long as the call.
                sizes[x.number] = name
            else:
                kept.append((i, name))
        found.append(Growing(tuple(kept), growth.grid(step)))
    for index, step in enumerate(steps):
        if isinstance(step, Allocation) and step.slot.number in sizes:
            found[index] = Growing(size=sizes[step.slot.number])
    return found


def grown(steps: Sequence[Step], parts: Sequence[Growing], lengths: Lengths) -> list[Step]:
    """The steps of a recording for another length; `parts` may be those of another recording."""
    return [_grown(step, part, lengths) for step, part in zip(steps, parts, strict=False)]


def _grown(step: Step, part: Growing, lengths: Lengths) -> Step:
    if isinstance(step, Allocation) and part.size is not None:
        shape = (*step.shape[:-1], lengths[part.size])
        return replace(step, shape=shape, stride=torch.empty(shape, device="meta").stride())
    if not isinstance(step, KernelStart):
        return step
    given = list(step.given)
    for i, name in part.arguments:
        x = given[i]
        if isinstance(x, DescriptorTemplate):
            shape, strides = lengths[name]
            given[i] = replace(x, rest=x.rest | {"shape": shape, "strides": strides})
        else:
            given[i] = lengths[name]
    grid = step.grid if part.grid is None else (lengths[part.grid], *step.grid[1:])
    return replace(step, given=given, grid=grid)
