"""Finds which tokens affect which outputs, by changing one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["CLOSE", "difference", "influence", "rows_changed"]

# Changes below this, relative to the largest number, are rounding errors.
CLOSE = 1e-5


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest number; NaN equals NaN only.

    >>> difference(torch.tensor([2.0, torch.nan]), torch.tensor([4.0, torch.nan]))
    0.5
    """
    if ours.shape != theirs.shape or bool((ours.isnan() != theirs.isnan()).any()):
        return float("inf")
    ours, theirs = ours.double().nan_to_num(0.0), theirs.double().nan_to_num(0.0)
    if not ours.numel():
        return 0.0
    return float((ours - theirs).abs().max()) / max(float(theirs.abs().max()), 1e-12)


def rows_changed(before: Tensor, after: Tensor, tolerance: float = CLOSE) -> Tensor:
    """Which rows of `(batch, length, width)` differ, in any sequence of the batch."""
    size = max(float(before.nan_to_num(0.0).abs().max()), 1e-12)
    moved = (before - after).nan_to_num(0.0, posinf=size).abs() > tolerance * size
    moved |= before.isnan() != after.isnan()
    return moved.any(-1).any(0)


def influence(
    run: Callable[[Any], Tensor],
    state: Any,
    change: Callable[[Any, int], Any],
    keys: int,
    tolerance: float = CLOSE,
) -> Tensor:
    """A `(q, k)` matrix: whether output q changes when token k is changed.

    >>> x = torch.randn(1, 3, 2)
    >>> def change(x, j):
    ...     x = x.clone()
    ...     x[:, j] += 1
    ...     return x
    >>> influence(lambda x: x.cumsum(1), x, change, 3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    before = run(state)
    columns = [rows_changed(before, run(change(state, j)), tolerance) for j in range(keys)]
    return torch.stack(columns, -1)
