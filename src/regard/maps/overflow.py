"""Warnings about scores that overflow, without waiting for the GPU."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats import RowMaximum

__all__ = ["report", "settle"]

HALF_MAX = torch.finfo(torch.float16).max
LEVEL = 4
# On a GPU, the number of partial maxima: reducing to a single number takes twice as long.
PARTS = 2048


@dataclass(frozen=True)
class Pending:
    """The largest log-sum-exp and score, being copied from a device; `done` says whether the copy is
    complete."""

    largest: Float[Tensor, "lse_and_score parts"]
    lse: Float[Tensor, "batch heads q"]
    kept_in: torch.dtype
    done: Callable[[], bool]
    by: _Courier | None = None


@dataclass(frozen=True)
class _Courier:
    """Copies numbers from a device. Creating one takes longer than a copy, so they are reused."""

    largest: Float[Tensor, "lse_and_score parts"]
    # This event class finds the stream by itself; `torch.cuda.Event` looks it up in Python, which is slower.
    event: torch.Event = field(default_factory=partial(torch.Event, "cuda"))

    def bring(self, largest: Float[Tensor, "lse_and_score parts"]) -> None:
        self.largest.copy_(largest, non_blocking=True)
        self.event.record()


_waiting: list[Pending] = []
# Idle couriers by device, dtype and number of values.
_couriers: dict[tuple[torch.device, torch.dtype, torch.Size], list[_Courier]] = {}


def report(
    lse: Float[Tensor, "batch heads q"], found: Mapping[str, Any], half: bool, kept_in: torch.dtype
) -> None:
    """Warn about NaN rows, and about scores that overflow float16.

    On a GPU the numbers arrive later, so the warning is raised by the next call, or by `settle`.
    """
    settle(wait=False)
    if not lse.numel():
        return
    scores = [x.value for x in found.values() if half and isinstance(x, RowMaximum)]
    tops = [_largest(x.detach()) for x in (lse, *scores[:1])]
    largest = torch.stack(tops) if scores else tops[0][None]
    if not largest.is_cuda:
        _warn(Pending(largest, lse, kept_in, lambda: True))
        return
    idle = _idle(lse.device, largest)
    if idle:
        courier = idle.pop()
    else:
        courier = _Courier(torch.empty(largest.shape, dtype=largest.dtype, pin_memory=True))
    courier.bring(largest)
    _waiting.append(Pending(courier.largest, lse.detach(), kept_in, courier.event.query, courier))


def settle(wait: bool = True) -> None:
    """Raise the warnings of earlier calls whose numbers have arrived; with `wait`, of all earlier calls."""
    if wait and _waiting:
        torch.cuda.synchronize()
    while _waiting and _waiting[0].done():
        pending = _waiting.pop(0)
        _warn(pending)
        if pending.by is not None:
            _idle(pending.lse.device, pending.largest).append(pending.by)


def _largest(x: Float[Tensor, "batch heads q"]) -> Float[Tensor, "parts"]:
    """The largest numbers of some parts; NaN if anything is, so they say whether all rows are in order."""
    parts = PARTS if x.is_cuda and x.numel() % PARTS == 0 else 1
    return x.reshape(parts, -1).amax(1)


def _idle(device: torch.device, largest: Float[Tensor, "lse_and_score parts"]) -> list[_Courier]:
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
