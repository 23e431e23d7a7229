"""Scores that no number can hold: reported where they begin, without making a GPU wait for the report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats import RowMaximum

__all__ = ["report", "settle"]

HALF_MAX = torch.finfo(torch.float16).max
LEVEL = 4


@dataclass(frozen=True)
class Pending:
    """Counts on their way from a device: `done` says whether they have arrived."""

    counts: Float[Tensor, "lost top"]
    rows: int
    kept_in: torch.dtype
    done: Callable[[], bool]


_waiting: list[Pending] = []


def report(
    lse: Float[Tensor, "batch heads q"], found: Mapping[str, Any], half: bool, kept_in: torch.dtype
) -> None:
    """Warn of rows that are not numbers, and of scores that float16 could not hold.

    On a GPU that is known only when it gets there: the warning comes with the next call, or from `settle`.
    """
    settle(wait=False)
    lost = (lse.isnan() | (lse == torch.inf)).sum().to(torch.float32)
    tops = [x.value.max() for x in found.values() if half and isinstance(x, RowMaximum) and x.value.numel()]
    counts = torch.stack([lost, *(top.to(torch.float32) for top in tops[:1])])
    if not counts.is_cuda:
        _warn(Pending(counts, lse.numel(), kept_in, lambda: True))
        return
    here = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=True)
    here.copy_(counts, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    _waiting.append(Pending(here, lse.numel(), kept_in, event.query))


def settle(wait: bool = True) -> None:
    """Give the warnings of earlier calls whose counts have arrived; with `wait`, of all of them."""
    if wait and _waiting:
        torch.cuda.synchronize()
    while _waiting and _waiting[0].done():
        _warn(_waiting.pop(0))


def _warn(pending: Pending) -> None:
    lost, *tops = pending.counts.tolist()
    if lost:
        warnings.warn(
            f"{int(lost)} of {pending.rows} rows have scores that are NaN or overflow {pending.kept_in}; "
            "their output and statistics are not numbers. Look for large q or k, or set softcap=.",
            stacklevel=LEVEL,
        )
    for top in tops:
        if HALF_MAX < top < torch.inf:
            warnings.warn(
                f"the largest score is {top:.0f}, above float16's {HALF_MAX:.0f}: exact here, where "
                "scores are kept in float32, but code that keeps them in float16 overflows.",
                stacklevel=LEVEL,
            )
