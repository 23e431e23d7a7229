"""Exact tiles of a map: with known log-sum-exps, each tile can be computed independently."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.large_rows import RowNorms, lifted
from regard.engine.parts import Part, Tile, parts
from regard.engine.problem import Problem
from regard.engine.schedule import Row
from regard.engine.stopping import check
from regard.stats import Frame, MapTile

__all__ = ["map_tiles"]

# Wider tiles than in the forward: each statistic has a fixed cost per tile.
KEYS = 2048


def map_tiles(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    frame: Frame,
    *,
    norms: RowNorms | None = None,
    all_heads: bool = False,
    keep: bool = False,
) -> Iterator[MapTile]:
    """Yield every visited tile of the map, exact; with `keep`, tiles also have the logarithms of weights.

    A tile's tensors are buffers that the next tile overwrites.
    """
    # exp(s - inf) = 0: a dead row has weight nowhere.
    bound = lse.masked_fill(lse == -torch.inf, torch.inf)
    for part in parts(problem if norms is None else lifted(problem), all_heads, keys=KEYS):
        reader = _Reader(part, bound, keep) if norms is None else _LargeReader(part, norms, bound, keep)
        for row in part.rows():
            for tile in reader.tiles(row, frame):
                check()
                yield tile


class _Reader:
    """Computes the log weights s - lse of one part, tile after tile, into the same memory."""

    def __init__(self, part: Part, bound: Tensor, keep: bool) -> None:
        self.part, self.bound = part, bound
        self.k = part.keys(part.problem.k)
        # A plain dot product subtracts lse in the same product: lse is one more column of q, against a column
        # of ones in k.
        self.folded = part.problem.scoring.linear
        if self.folded:
            self.k = torch.cat([self.k, self.k.new_ones(*self.k.shape[:2], 1)], -1)
        self.first = part.buffer()
        self.second = part.buffer() if keep else None

    def tiles(self, row: Row, frame: Frame) -> Iterator[MapTile]:
        part = self.part
        q = part.scaled(part.queries(part.problem.q, row.queries))
        lse = part.queries(self.bound[..., None], row.queries)
        if self.folded:
            # Dead rows are masked in every tile: inf in a matrix product could give NaN.
            q = torch.cat([q, -lse.masked_fill(lse == torch.inf, 0.0)], -1)
        for tile in part.tiles(row):
            logs = part.scores(q, self.k[:, tile.keys.start : tile.keys.stop], tile, self.first)
            if not self.folded:
                logs.sub_(lse)
            if self.second is None:
                yield _shown(part, tile, frame, logs.exp_())
            else:
                weights = torch.exp(logs, out=self.second[: logs.numel()].view(logs.shape))
                yield _shown(part, tile, frame, weights, logs, lse)


class _LargeReader:
    """`_Reader` for large scores: scores in float64, weights in the usual dtype."""

    def __init__(self, part: Part, norms: RowNorms, bound: Tensor, keep: bool) -> None:
        self.part, self.norms, self.bound, self.keep = part, norms, bound, keep
        self.k = part.keys(part.problem.k)
        self.buffer = part.buffer()

    def tiles(self, row: Row, frame: Frame) -> Iterator[MapTile]:
        part = self.part
        q = part.scaled(part.queries(part.problem.q, row.queries))
        high, low, lse = (
            part.queries(x[..., None], row.queries)[..., 0]
            for x in (self.norms.high, self.norms.low, self.bound)
        )
        norms, lse = RowNorms(high, low), lse[..., None].to(frame.dtype)
        for tile in part.tiles(row):
            scores = part.scores(q, self.k[:, tile.keys.start : tile.keys.stop], tile, self.buffer)
            logs = norms.log_weights(scores)
            if self.keep:
                yield _shown(part, tile, frame, logs.exp().to(frame.dtype), logs.to(frame.dtype), lse)
            else:
                yield _shown(part, tile, frame, logs.exp_().to(frame.dtype))


def _shown(
    part: Part,
    tile: Tile,
    frame: Frame,
    weights: Tensor,
    logs: Tensor | None = None,
    lse: Tensor | None = None,
) -> MapTile:
    # A dead row's bound is +inf and its scores are -inf; -inf + inf would be NaN.
    row_lse = None if lse is None else part.four(lse.masked_fill(lse == torch.inf, 0.0))[..., 0]
    return MapTile(
        frame=frame,
        batch=part.batch,
        heads=part.heads,
        rows=tile.rows,
        cols=tile.keys,
        weights=part.four(weights),
        allowed=None if tile.blocked is None else ~tile.blocked,
        log_weights_of=None if logs is None else lambda: part.four(logs),
        lse=row_lse,
        finite=tile.blocked is None and part.problem.scoring.linear,
    )
