"""The log-sum-exp of the rows of a map, computed when a row is first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.engine.large_rows import RowNorms, are_large, row_norms
from regard.engine.problem import Problem
from regard.engine.torch_backend.forward import forward

__all__ = ["Normalisers"]

# Rows whose log-sum-exp is computed at once.
BAND = 512


class Normalisers:
    """The log-sum-exp of every row of a problem, computed when the row is first read.

    Rows with a large log-sum-exp also get one in two float64 parts, computed on first read too.
    """

    def __init__(self, problem: Problem, lse: Tensor | None = None, known: Tensor | None = None) -> None:
        """`known` says which rows of `lse` are computed already; by default all."""
        self.problem, self._known = problem, known
        self._given = None if lse is None else lse.detach()
        # Norms of large rows, and flags of the rows that have one; allocated for the first.
        self._large: tuple[RowNorms, Tensor] | None = None

    @cached_property
    def known(self) -> Bool[Tensor, "q"]:
        """Which rows are computed already."""
        if self._known is None:
            return torch.full((self.problem.q_len,), self._given is not None, device="cpu")
        return self._known

    @cached_property
    def _lse(self) -> Float[Tensor, "batch heads q"]:
        if self._given is None:
            return self.problem.q.new_empty(self.problem.q.shape[:3], dtype=self.problem.accumulate)
        return self._given

    @property
    def lse(self) -> Float[Tensor, "batch heads q"]:
        """The log-sum-exp of every row."""
        self._learn(torch.arange(len(self.known)))
        return self._lse

    @property
    def norms(self) -> RowNorms | None:
        """The two-part log-sum-exp of every row, if some rows are large."""
        return self._learned_norms(torch.arange(len(self.known))) if are_large(self.lse) else None

    def some(self, rows: Int[Tensor, "n"]) -> tuple[Float[Tensor, "batch heads q"], RowNorms | None]:
        """The log-sum-exp and norms of some queries; unknown ones of other queries are -inf."""
        self._learn(rows)
        lse = self._lse.masked_fill(~self.known.to(self._lse.device), -torch.inf)
        return lse, self._learned_norms(rows) if are_large(lse) else None

    def of(self, axes: tuple[Int[Tensor, "n"], ...]) -> Tensor | RowNorms:
        """The log-sum-exp of some batch rows, heads and queries; in two parts if one of them is large."""
        self._learn(axes[2])
        batch, heads, rows = (axis.to(self._lse.device) for axis in axes[:3])
        at = (batch[:, None, None], heads[:, None], rows)
        if not are_large(self._lse[at]):
            return self._lse[at]
        norms = self._learned_norms(axes[2])
        return RowNorms(norms.high[at], norms.low[at])

    def copy_to(self, problem: Problem, move: Callable[[Tensor], Tensor]) -> Normalisers:
        """The log-sum-exps for a problem whose tensors were moved; norms of large rows are computed again."""
        return Normalisers(problem, move(self._lse), self.known.clone())

    def _learn(self, rows: Int[Tensor, "n"]) -> None:
        """Compute the unknown log-sum-exps of these rows, and as few others as possible."""
        for block in _blocks(rows, self.known):
            part = replace(self.problem.block(block), v=self.problem.k[..., :0])
            with torch.no_grad():
                self._lse[:, :, block.start : block.stop] = forward(part).lse

    def _learned_norms(self, rows: Int[Tensor, "n"]) -> RowNorms:
        if self._large is None:
            empty = torch.empty_like(self._lse, dtype=torch.float64)
            self._large = RowNorms(empty, torch.empty_like(empty)), torch.zeros_like(self.known)
        norms, known = self._large
        for block in _blocks(rows, known):
            at = slice(block.start, block.stop)
            with torch.no_grad():
                found = row_norms(self.problem.block(block), self._lse[:, :, at])
            norms.high[:, :, at], norms.low[:, :, at] = found.high, found.low
        return norms


def _blocks(rows: Int[Tensor, "n"], known: Tensor) -> Iterator[range]:
    """Yield ranges that contain the unknown rows, at most one per band, and mark these rows as known."""
    missing = rows[~known[rows]]
    bands = missing // BAND
    for band in bands.unique().tolist():
        wanted = missing[bands == band]
        block = range(int(wanted.min()), int(wanted.max()) + 1)
        yield block
        known[block.start : block.stop] = True
