"""The second pass: once every row's log-sum-exp is known, each tile of the map is exact when it is computed.

One pass over the tiles, queries times keys only, serves however many statistics are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine import native
from regard.engine import triton as gpu
from regard.engine.large_rows import RowNorms, are_large, lifted, row_norms
from regard.engine.lazy_zeros import LazyZeros
from regard.engine.parts import Part, Tile, parts
from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.schedule import Row
from regard.errors import BackendError
from regard.stats import Frame, MapTile, State, Statistic, folds_of
from regard.stats.folds import Fold

__all__ = ["explain", "frame_of", "map_tiles", "on_gpu", "summarise"]

# Wider tiles than the forward's: each statistic does a little work per tile beside what it does per cell.
KEYS = 2048


def frame_of(problem: Problem) -> Frame:
    """The frame of a problem's map."""
    return Frame(
        batch=problem.batch,
        heads=problem.heads,
        q=problem.q_len,
        k=problem.k_len,
        mask=problem.mask,
        values=problem.v,
        dtype=problem.accumulate,
        device=problem.q.device,
    )


def summarise(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    statistics: Mapping[str, Statistic],
    backend: str = "auto",
    streamed: Streamed | None = None,
    norms: RowNorms | None = None,
) -> dict[str, Any]:
    """Every statistic of the map: folded by native kernels where that can be, the others from tiles.

    Either is one pass over the map (two if some must see all heads at once). What the forward pass brought
    along spares kernels for GPUs some of it. Maps of large scores are read from tiles, in float64; `norms`
    are those of the map, if they are known.
    """
    frame, blank = frame_of(problem), LazyZeros()
    if 0 in (problem.batch, problem.q_len, problem.k_len):
        # No pass could add anything to the states of a map without cells.
        return {
            name: statistic.finish(statistic.init(frame), frame) for name, statistic in statistics.items()
        }
    by_gpu = on_gpu(problem, backend)
    if norms is None and not by_gpu and are_large(lse):
        norms = row_norms(problem, lse)
    roomy = replace(frame, make_sums=blank) if by_gpu else frame
    states: dict[str, State] = {name: statistic.init(roomy) for name, statistic in statistics.items()}
    folded: set[str] = set()
    if by_gpu:
        folded = _fold_on_gpu(problem, lse, frame, statistics, states, backend, streamed, blank)
        blank.clear_all()
    elif norms is None and native.refusal(problem, backend, lse) is None:
        folded = _fold(problem, lse, frame, statistics, states)
    shown = {name: s for name, s in statistics.items() if name not in folded}
    for all_heads in (False, True):
        group = {name: s for name, s in shown.items() if s.needs_all_heads is all_heads}
        if not group:
            continue
        keep = any(s.needs_log_weights or s.needs_scores for s in group.values())
        names = sorted(group, key=lambda name: group[name].spoils_log_weights - group[name].makes_block_sums)
        for tile in map_tiles(problem, lse, frame, norms=norms, all_heads=all_heads, keep=keep):
            for name in names:
                group[name].update(states[name], tile)
    return {name: statistic.finish(states[name], frame) for name, statistic in statistics.items()}


def _fold(
    problem: Problem,
    lse: Tensor,
    frame: Frame,
    statistics: Mapping[str, Statistic],
    states: Mapping[str, State],
) -> set[str]:
    """Fill the states of all that can be folded natively; returns their names."""
    found = {name: folds_of(s, states[name], frame) for name, s in statistics.items()}
    folds = {name: each for name, each in found.items() if each is not None}
    native.fold(problem, lse, frame, [fold for each in folds.values() for fold in each])
    return set(folds)


def explain(problem: Problem, backend: str) -> str:
    """What will read a map, in words."""
    if on_gpu(problem, backend):
        hopper = problem.q.is_cuda and gpu.hopper.applicable(problem)
        return "fused kernels for Hopper" if hopper else "fused kernels for GPUs"
    if problem.q.is_cuda and backend == "auto":
        return f"torch operations: {gpu.refusal(problem)}"
    return native.explain(problem, backend)


def on_gpu(problem: Problem, backend: str) -> bool:
    """Whether the kernels for GPUs read the map, whoever does the plain forward."""
    wanted = backend == "triton" or (backend == "auto" and problem.q.is_cuda)
    return wanted and gpu.refusal(problem) is None


def _fold_on_gpu(
    problem: Problem,
    lse: Tensor,
    frame: Frame,
    statistics: Mapping[str, Statistic],
    states: Mapping[str, State],
    backend: str,
    streamed: Streamed | None,
    blank: LazyZeros,
) -> set[str]:
    """The same by kernels for GPUs; what they cannot do is refused where they were asked for by name."""
    from regard.engine.triton.second_pass.folds import fold

    folds: dict[str, list[Fold]] = {}
    for name, statistic in statistics.items():
        found = folds_of(statistic, states[name], frame)
        reasons = ["it must see the tiles"] if found is None else map(gpu.cannot_fold, found)
        why = next((reason for reason in reasons if reason is not None), None)
        if why is None and found is not None:
            folds[name] = found
        elif backend == "triton":
            raise BackendError(f"backend='triton' cannot run {statistic!r}: {why}. Use backend='torch'.")
    fold(problem, lse, [each for some in folds.values() for each in some], streamed, blank)
    return set(folds)


def map_tiles(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    frame: Frame,
    *,
    norms: RowNorms | None = None,
    all_heads: bool = False,
    keep: bool = False,
) -> Iterator[MapTile]:
    """Every visited tile of the map, exact; `keep` holds on to the logarithms beside the weights.

    A tile's tensors are buffers of the pass: they are valid until the next tile is asked for.
    """
    # exp(s - inf) = 0: a dead row has weight nowhere.
    bound = lse.masked_fill(lse == -torch.inf, torch.inf)
    for part in parts(problem if norms is None else lifted(problem), all_heads, keys=KEYS):
        reader = _Reader(part, bound, keep) if norms is None else _LargeReader(part, norms, bound, keep)
        for row in part.rows():
            yield from reader.tiles(row, frame)


class _Reader:
    """Computes the log weights s - lse of one part, tile after tile, into the same memory."""

    def __init__(self, part: Part, bound: Tensor, keep: bool) -> None:
        self.part, self.bound = part, bound
        self.k = part.keys(part.problem.k)
        # A plain dot product subtracts lse by itself: it is one more column of q, against a key column of 1.
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
            # Dead rows are masked wherever they are visited; inf in a matrix product might make NaN.
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
    """The same where scores are large: they are computed in float64, their weights kept as everywhere."""

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
