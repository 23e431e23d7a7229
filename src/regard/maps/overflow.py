"""Warnings about scores that overflow, without waiting for the GPU."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.stats import RowMaximum

__all__ = ["report", "settle"]

HALF_MAX = torch.finfo(torch.float16).max
LEVEL = 4
# On a GPU, the most partial maxima: reducing to a single number takes twice as long.
PARTS = 2048


@dataclass(frozen=True)
class Pending:
    """Numbers being copied from a device: the largest log-sum-exp and score, or flags of blocks with such
    rows. `done` says whether the copy is complete."""

    largest: Tensor
    lse: Float[Tensor, "batch heads q"]
    kept_in: torch.dtype
    done: Callable[[], bool]
    by: _Courier | None = None
    are_flags: bool = False


@dataclass(frozen=True)
class _Courier:
    """Copies numbers from a device. Creating one takes longer than a copy, so they are reused."""

    largest: Tensor
    # This event class finds the stream by itself; `torch.cuda.Event` looks it up in Python, which is slower.
    event: torch.Event = field(default_factory=partial(torch.Event, "cuda"))

    def bring(self, largest: Tensor) -> None:
        self.largest.copy_(largest, non_blocking=True)
        self.event.record()


_waiting: list[Pending] = []
# Idle couriers by device, dtype and number of values.
_couriers: dict[tuple[torch.device, torch.dtype, torch.Size], list[_Courier]] = {}


def report(
    lse: Float[Tensor, "batch heads q"],
    found: Mapping[str, Any],
    half: bool,
    kept_in: torch.dtype,
    lost: Int[Tensor, "batch heads q_blocks"] | None = None,
) -> None:
    """Warn about NaN rows, and about scores that overflow float16.

    On a GPU the numbers arrive later, so the warning is raised by the next call, or by `settle`. `lost`
    flags the blocks with such rows: without a flag no row is looked at.
    """
    settle(wait=False)
    if not lse.numel():
        return
    scores = [x.value for x in found.values() if half and isinstance(x, RowMaximum)]
    if lost is not None and lost.is_cuda and not scores:
        _send(lost, lse, kept_in, are_flags=True)
        return
    largest = _largest_of(lse, *scores[:1])
    if largest.is_cuda:
        _send(largest, lse, kept_in)
    else:
        _warn(Pending(largest, lse, kept_in, lambda: True))


def settle(wait: bool = True) -> None:
    """Raise the warnings of earlier calls whose numbers have arrived; with `wait`, of all earlier calls."""
    if wait and _waiting:
        torch.cuda.synchronize()
    while _waiting and _waiting[0].done():
        pending = _waiting.pop(0)
        if not pending.are_flags:
            _warn(pending)
        elif pending.largest.numpy().any():
            _send(_largest_of(pending.lse), pending.lse, pending.kept_in)
            if wait:
                torch.cuda.synchronize()
        if pending.by is not None:
            _idle(pending.lse.device, pending.largest).append(pending.by)


def _send(numbers: Tensor, lse: Float[Tensor, "batch heads q"], kept_in: torch.dtype, **about: bool) -> None:
    """Copy numbers from a device, without waiting for them."""
    idle = _idle(lse.device, numbers)
    if idle:
        courier = idle.pop()
    else:
        courier = _Courier(torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True))
    courier.bring(numbers)
    _waiting.append(Pending(courier.largest, lse.detach(), kept_in, courier.event.query, courier, **about))


def _largest_of(*numbers: Float[Tensor, "batch heads q"]) -> Float[Tensor, "numbers parts"]:
    first, *others = (_largest(x.detach()) for x in numbers)
    return torch.stack([first, *others]) if others else first.view(1, -1)


def _largest(x: Float[Tensor, "batch heads q"]) -> Float[Tensor, "parts"]:
    """The largest numbers of some parts; NaN if anything is, so they say whether all rows are in order."""
    if x.is_cuda and x.numel() <= PARTS:
        # A decode step: so few numbers are copied as they are.
        return x.reshape(-1)
    parts = PARTS if x.is_cuda and x.numel() % PARTS == 0 else 1
    return x.reshape(parts, -1).amax(1)


def _idle(device: torch.device, largest: Tensor) -> list[_Courier]:
    """The idle couriers for such numbers."""
    return _couriers.setdefault((device, largest.dtype, largest.shape), [])


def _warn(pending: Pending) -> None:
    lse, (largest, *scores) = pending.lse, pending.largest.amax(1).tolist()
    if not largest < math.inf:
        lost = int((lse.isnan() | (lse == math.inf)).sum())
        warnings.warn(
            f"{lost} of {lse.numel()} rows have scores that are NaN or overflow {pending.kept_in}; "
            "their output and statistics are not numbers. Look for large q or k, or set softcap=.",
            stacklevel=LEVEL,
        )
    for top in scores:
        if HALF_MAX < top < math.inf:
            warnings.warn(
                f"the largest score is {top:.0f}, above float16's {HALF_MAX:.0f}: exact here, where "
                "scores are kept in float32, but code that keeps them in float16 overflows.",
                stacklevel=LEVEL,
            )
