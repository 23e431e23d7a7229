"""Counts allowed pairs by column and by diagonal from the mask, once for all heads that share it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.engine.native.units import Unit, scheduled_units, spans_of
from regard.engine.problem import Problem
from regard.masks import Mask
from regard.stats.diagonals import diagonal_cells
from regard.stats.folds import PairFold
from regard.stats.skew import skewed_sums

__all__ = ["count"]


def count(problem: Problem, folds: Sequence[PairFold]) -> None:
    """Add the counts to the target of each fold."""
    for first in sorted({fold.first if fold.along == "diagonals" else 0 for fold in folds}):
        columns, diagonals = _counted(problem, problem.mask, first)
        for fold in folds:
            if fold.along == "diagonals" and fold.first == first:
                fold.into.add_(diagonals)
            elif first == 0 and fold.along == "columns":
                fold.into.add_(columns[..., fold.first : fold.first + fold.into.shape[-1]])
            elif first == 0 and fold.along == "map":
                fold.into.add_(columns.sum(-1, keepdim=True))


def _counted(
    problem: Problem, mask: Mask | None, skip: int
) -> tuple[Int64[Tensor, "#batch #heads k"], Int64[Tensor, "#batch #heads diagonals"]]:
    """The pairs by column and by diagonal, without the first `skip` keys."""
    q, k = problem.q_len, problem.k_len
    if mask is None:
        everything = (
            torch.zeros(1, 1, q, dtype=torch.int64, device="cpu"),
            torch.full((1, 1, q), k, device="cpu"),
        )
        return _from_spans(*everything, k, skip)
    spans = spans_of(mask, problem)
    if spans is not None:
        return spans.once(("pairs", skip), lambda: _from_spans(spans.low, spans.high, k, skip))
    batch, heads = mask.batch or 1, mask.heads or 1
    if batch > 1:
        # Count each batch row separately: some may have intervals of keys and others not.
        found = [_counted(problem, mask.select(row), skip) for row in range(batch)]
        columns, diagonals = (
            torch.cat([row.expand(1, heads, -1) for row in rows]) for rows in zip(*found, strict=True)
        )
        return columns, diagonals
    columns = torch.zeros(1, heads, k, dtype=torch.int64, device="cpu")
    diagonals = torch.zeros(1, heads, max(q, 1) + k - 1, dtype=torch.int64, device="cpu")
    for unit in scheduled_units(problem, mask, skip):
        if unit.head < heads:
            _add(unit, columns[0, unit.head], diagonals[0, unit.head], q)
    return columns, diagonals


def _from_spans(low: Tensor, high: Tensor, k: int, skip: int) -> tuple[Tensor, Tensor]:
    """Add 1 at each row's first key and subtract it after its last, likewise along diagonals; then
    accumulate."""
    q = low.shape[-1]
    low = low.clamp(min=skip)
    some = (low < high).long()
    shift = torch.arange(q - 1, -1, -1, device="cpu")
    found = []
    for start, length in ((0, k), (shift, max(q, 1) + k - 1)):
        steps = torch.zeros(*low.shape[:2], length + 1, dtype=torch.int64, device="cpu")
        steps.scatter_add_(-1, (low + start).clamp(max=length), some)
        steps.scatter_add_(-1, (high + start).clamp(max=length), -some)
        found.append(steps.cumsum(-1)[..., :-1])
    return found[0], found[1]


def _add(unit: Unit, columns: Tensor, diagonals: Tensor, q: int) -> None:
    rows = len(unit.rows)
    for span in unit.spans:
        if span.allowed is None:
            down, along = (
                torch.tensor(rows, device="cpu"),
                diagonal_cells(rows, len(span.keys), columns.device),
            )
        else:
            # A piece has far fewer rows than the 2^24 up to which float32 counts exactly.
            down, along = span.allowed.sum(0), skewed_sums(span.allowed.float()).long()
        columns[span.keys.start : span.keys.stop] += down
        start = span.keys.start + q - unit.rows.stop
        diagonals[start : start + len(along)] += along
