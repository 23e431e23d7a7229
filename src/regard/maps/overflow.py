"""Scores that no number can hold: reported where they begin, without making a GPU wait for the report."""

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
# On a GPU so many parts of the rows have a maximum each: one number for all takes twice as long.
PARTS = 2048


@dataclass(frozen=True)
class Pending:
    """The largest log-sum-exp and score on their way from a device: `done` says whether they have arrived."""

    largest: Float[Tensor, "lse_and_score parts"]
    lse: Float[Tensor, "batch heads q"]
    kept_in: torch.dtype
    done: Callable[[], bool]
    by: _Courier | None = None


@dataclass(frozen=True)
class _Courier:
    """Brings numbers from a device. Making one takes longer than the way: they are kept for the next call."""

    largest: Float[Tensor, "lse_and_score parts"]
    # This kind finds the stream by itself; that of `torch.cuda` asks for it in Python, which takes longer.
    event: torch.Event = field(default_factory=partial(torch.Event, "cuda"))

    def bring(self, largest: Float[Tensor, "lse_and_score parts"]) -> None:
        self.largest.copy_(largest, non_blocking=True)
        self.event.record()


_waiting: list[Pending] = []
# By the device they come from, what kind of numbers they carry and how many.
_couriers: dict[tuple[torch.device, torch.dtype, torch.Size], list[_Courier]] = {}


def report(
    lse: Float[Tensor, "batch heads q"], found: Mapping[str, Any], half: bool, kept_in: torch.dtype
) -> None:
    """Warn of rows that are not numbers, and of scores that float16 could not hold.

    On a GPU that is known only when it gets there: the warning comes with the next call, or from `settle`.
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
    """Give the warnings of earlier calls whose numbers have arrived; with `wait`, of all of them."""
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
    """The couriers that are free to copy such numbers from a device."""
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
