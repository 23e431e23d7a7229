"""Reads one head's map with as little work as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.scoring import Scoring
from regard.errors import MapError
from regard.maps import AttentionMap
from regard.masks import Coverage, Mask
from regard.scores import Bias

__all__ = ["Head"]

# Cells per strip: few enough to stay in the cache between product, exponential and pooling.
ROWS, COLS = 256, 1024


@dataclass(frozen=True)
class Head:
    """The map of one head for the first text of a batch; rows are queries, columns keys.

    >>> import torch, regard
    >>> q = torch.zeros(1, 4, 5, 8)
    >>> head = Head.of(regard.AttentionMap.of(q, q[:, :2], mask=regard.Causal()), 3)
    >>> head.read(range(1, 3), range(0, 3))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333]])
    """

    map: AttentionMap

    @classmethod
    def of(cls, whole: AttentionMap, head: int) -> Head:
        """One head of a layer's map; its tensors are views."""
        heads = whole.shape[1]
        if not 0 <= head < heads:
            raise MapError(f"head {head} is out of range: the layer has {heads} (head 0 to {heads - 1}).")
        p, shared = whole.problem, head // whole.problem.group
        alone = replace(
            p,
            q=p.q[:1, head : head + 1],
            k=p.k[:1, shared : shared + 1],
            v=p.v[:1, shared : shared + 1],
            mask=None if p.mask is None else _mask(p.mask, head),
            scoring=_scoring(p.scoring, head),
            sink=None if p.sink is None else p.sink[head : head + 1],
        )
        return cls(AttentionMap(alone, whole.lse[:1, head : head + 1]))

    @property
    def queries(self) -> int:
        return self.map.shape[2]

    @property
    def keys(self) -> int:
        return self.map.shape[3]

    @property
    def offset(self) -> int:
        """The position of query 0."""
        return self.map.problem.offset

    @cached_property
    def lse(self) -> Float[Tensor, " q"]:
        """The log-sum-exp of every row."""
        return self.map.lse[0, 0]

    @cached_property
    def _free(self) -> AttentionMap:
        """The same map without its mask, for regions that the mask allows completely: evaluating the mask
        takes longer than computing α."""
        return AttentionMap(replace(self.map.problem, mask=None), self.map.lse)

    def band(self, rows: range) -> AttentionMap:
        """Some rows of the map as a map of their own, each query at its own position."""
        lse = self.map.lse[:, :, rows.start : rows.stop]
        return AttentionMap(self.map.problem.block(rows), lse)

    def read(self, rows: range, cols: range) -> Float[Tensor, "q k"]:
        """The exact weights of a rectangle, computed by the map."""
        return self._covered(rows, cols, self.coverage([rows], [cols])[0][0])

    def scores(self, rows: range, cols: range) -> Float[Tensor, "q k"]:
        """The logits of a rectangle, -inf where masked."""
        return self.map.scores((0, 0, rows, cols))

    def coverage(self, rows: list[range], cols: list[range]) -> list[list[int]]:
        """How much of each rectangle the mask allows: EMPTY, PARTIAL or FULL."""
        mask = self.map.mask
        if mask is None:
            return [[int(Coverage.FULL)] * len(cols) for _ in rows]
        corners = [
            torch.tensor([r.start + self.offset for r in rows])[:, None],
            torch.tensor([r.stop + self.offset for r in rows])[:, None],
            torch.tensor([c.start for c in cols])[None],
            torch.tensor([c.stop for c in cols])[None],
        ]
        return mask.cover(*corners).expand(len(rows), len(cols)).tolist()

    def visible(self, rows: range, cols: range) -> int:
        """How many cells of a rectangle the mask allows."""
        mask = self.map.mask
        if mask is None:
            return len(rows) * len(cols)
        low_high = mask.spans(torch.arange(rows.start, rows.stop) + self.offset)
        if low_high is not None:
            low, high = (x.reshape(-1, len(rows))[0].clamp(cols.start, cols.stop) for x in low_high)
            return int((high - low).clamp(min=0).sum())
        return sum(
            len(r) * len(c) if cover == Coverage.FULL else int(_allowed(mask, r, c, self.offset).sum())
            for r, c, cover in self.strips(rows, cols)
        )

    def strips(self, rows: range, cols: range):
        """The nonempty strips of the rectangle with their coverage."""
        down, across = _cut(rows, ROWS), _cut(cols, COLS)
        for r, covers in zip(down, self.coverage(down, across), strict=True):
            for c, cover in zip(across, covers, strict=True):
                if cover != Coverage.EMPTY:
                    yield r, c, cover

    def pieces(self, rows: range, cols: range):
        """The exact weights of the rectangle, piece by piece; weights outside the pieces are 0."""
        linear = self.map.problem.scoring.linear
        for r, c, cover in self.strips(rows, cols):
            plain = linear and cover == Coverage.FULL
            yield r, c, self._plain(r, c) if plain else self._covered(r, c, cover)

    def _covered(self, rows: range, cols: range, cover: int) -> Float[Tensor, "q k"]:
        if cover == Coverage.EMPTY:
            return torch.zeros(len(rows), len(cols), dtype=self.map.dtype)
        return (self._free if cover == Coverage.FULL else self.map)[0, 0, rows, cols]

    def _plain(self, rows: range, cols: range) -> Float[Tensor, "q k"]:
        """exp(scale q kᵀ − lse) without a mask; the product is added to −lse in one operation."""
        p = self.map.problem
        q = p.q[0, 0, rows.start : rows.stop].to(p.accumulate) * p.scoring.scale
        k = p.k[0, 0, cols.start : cols.stop].to(p.accumulate)
        lse = self.lse[rows.start : rows.stop, None]
        return torch.addmm(lse, q, k.T, beta=-1).exp_()


def _cut(span: range, size: int) -> list[range]:
    return [range(start, min(start + size, span.stop)) for start in range(span.start, span.stop, size)]


def _allowed(mask: Mask, rows: range, cols: range, offset: int) -> Tensor:
    return mask.tile((rows.start + offset, rows.stop + offset), (cols.start, cols.stop))


def _mask(mask: Mask, head: int) -> Mask:
    mask = mask.select(0)
    return mask if mask.heads is None else _OneHead(mask, head)


def _scoring(scoring: Scoring, head: int) -> Scoring:
    bias, own = scoring.bias, scoring.score_mod
    if isinstance(bias, Tensor):
        bias = bias[:1, head : head + 1] if bias.shape[1] > 1 else bias[:1]
    elif bias is not None:
        bias = _OneBias(bias, head)
    if own is None:
        return replace(scoring, bias=bias)
    return replace(scoring, bias=bias, score_mod=lambda s, b, h, q, k: own(s, b, h + head, q, k))


@dataclass(frozen=True, eq=False)
class _OneHead(Mask):
    """One head of a mask that differs between heads."""

    of: Mask
    head: int

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return self.of.allows(q, k)[0, self.head]

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        return self.of.cover(q_start, q_stop, k_start, k_stop)


@dataclass(frozen=True, eq=False)
class _OneBias(Bias):
    """What a bias adds to the scores of one head."""

    of: Bias
    head: int

    def tile(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        found = self.of.tile(q_pos, k_pos)
        if found.ndim < 3 or found.shape[-3] == 1:
            return found
        return found.narrow(-3, self.head, 1)
