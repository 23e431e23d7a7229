"""The forward pass: attention by streaming tiles, in plain torch operations, on every device.

This backend defines the correct result. It holds one tile of scores at a time, sums in float32 or better and
in a fixed order, and supports every option. Of the map it returns one log-sum-exp per row, from which every
cell can be recomputed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine.dropout import dropped
from regard.engine.finite import finite
from regard.engine.gemm import bmm
from regard.engine.parts import Part, Tile, parts
from regard.engine.problem import Problem
from regard.engine.riders import NO_RIDERS, Riders, Streamed
from regard.engine.schedule import Row
from regard.engine.sink import with_sink
from regard.stats.row_maxima import update_row_maxima

__all__ = ["forward"]

# float32 overflows near 3e38. If sums of exp(s - m), or of its products with values, exceed this limit, the
# block is streamed again with an update of the maximum per tile.
LARGE = 1e30


def forward(problem: Problem, riders: Riders = NO_RIDERS) -> Streamed:
    """Output, log-sum-exp and riders of every row."""
    result = _empty(problem, riders)
    dirty = problem.mask is not None and not finite(problem.v)
    for part in parts(problem):
        stream = _Stream(part, riders, dirty)
        for row in part.rows():
            stream.run(row)
            stream.write(row, result)
    return result if problem.sink is None else with_sink(problem.sink, result, problem.accumulate)


def _empty(problem: Problem, riders: Riders) -> Streamed:
    q, shape = problem.q, (problem.batch, problem.heads, problem.q_len)

    def rows(wanted: bool, *more: int, dtype: torch.dtype = problem.accumulate) -> Tensor | None:
        return q.new_empty((*shape, *more), dtype=dtype) if wanted else None

    extra = 0 if riders.columns is None else riders.columns.shape[-1]
    return Streamed(
        # Sums, which the backward pass reads: they are rounded to half precision for the user alone.
        out=q.new_empty((*shape, problem.v.shape[-1]), dtype=problem.accumulate),
        lse=q.new_empty(shape, dtype=problem.accumulate),
        columns=rows(riders.columns is not None, extra),
        entropy=rows(riders.entropy),
        distance=rows(riders.distance),
        max_score=rows(riders.max_score),
        argmax=rows(riders.max_score, dtype=torch.long),
        low=rows(riders.low),
    )


class _Stream:
    """Online softmax over the tiles of one block of queries after another."""

    def __init__(self, part: Part, riders: Riders, dirty: bool) -> None:
        p = part.problem
        self.part, self.riders, self.dirty = part, riders, dirty
        self.k = part.keys(p.k)
        v = part.keys(p.v)
        # A column of ones makes the second product return the row sums too; another one will hold positions.
        ones = [v.new_ones(*v.shape[:2], 1)] * (1 + riders.distance)
        extra = [] if riders.columns is None else [part.keys(riders.columns)]
        self.v = torch.cat([v, *ones, *extra], -1)
        self.width = v.shape[-1]
        self.buffer = part.buffer()
        self.second = torch.empty_like(self.buffer) if riders.entropy else None

    def run(self, row: Row) -> None:
        """Stream one block; leaves acc, m, energy and row_maxima."""
        if self.riders.distance:
            # Use positions relative to the middle of the block, so that they keep their precision in long
            # texts.
            positions = torch.arange(self.v.shape[1], dtype=self.v.dtype, device=self.v.device)
            self.v[..., self.width + 1] = self._middle(row) - positions
        self._stream(row, careful=False)
        if not bool((self.acc.abs() < LARGE).all()):
            self._stream(row, careful=True)

    def _middle(self, row: Row) -> int:
        return row.queries.start + self.part.problem.offset + len(row.queries) // 2

    def write(self, row: Row, result: Streamed) -> None:
        """Normalise the sums of a block and store its results."""
        part, rows, width = self.part, row.queries, self.width
        total = self.acc[..., width]
        share = total.reciprocal().masked_fill_(total == 0, 0.0)
        mixed = self.acc * share[..., None]
        part.put(result.out, rows, mixed[..., :width])
        # log 0 = -inf, so a dead row gets lse -inf.
        top, log_total = self.m[..., 0], total.log()
        lse = top + log_total
        part.put(result.lse, rows, lse)
        if result.low is not None:
            part.put(result.low, rows, (top - lse) + log_total)
        if result.entropy is not None:
            # lse - E[s], both measured from the running maximum so that nothing large cancels.
            entropy = total.log().masked_fill_(total == 0, 0.0) - self.energy * share
            part.put(result.entropy, rows, entropy.clamp_(min=0.0))
        if result.distance is not None:
            place = part.place(rows, range(0))
            from_middle = (place.q_pos - self._middle(row)).repeat(part.problem.group)
            part.put(result.distance, rows, mixed[..., width + 1] + from_middle * (total > 0))
        if result.columns is not None:
            part.put(result.columns, rows, mixed[..., width + 1 + self.riders.distance :])
        if result.max_score is not None and result.argmax is not None:
            part.put(result.max_score, rows, self.row_maxima[0])
            part.put(result.argmax, rows, self.row_maxima[1])

    def _stream(self, row: Row, careful: bool) -> None:
        part = self.part
        q = part.scaled(part.queries(part.problem.q, row.queries))
        self.acc = q.new_zeros(*q.shape[:2], self.v.shape[-1])
        self.m = q.new_full((*q.shape[:2], 1), -torch.inf)
        self.shift = torch.zeros_like(self.m)
        self.energy = q.new_zeros(q.shape[:2])
        nowhere = torch.full(q.shape[:2], -1, dtype=torch.long, device=q.device)
        self.row_maxima = (q.new_full(q.shape[:2], -torch.inf), nowhere)
        settled = False
        for tile in part.tiles(row):
            keys = slice(tile.keys.start, tile.keys.stop)
            s = part.scores(q, self.k[:, keys], tile, self.buffer)
            if self.riders.max_score or not settled:
                top = (
                    update_row_maxima(*self.row_maxima, s, tile.keys.start)
                    if self.riders.max_score
                    else s.amax(-1)
                )
                if careful or not settled:
                    # The maximum need not be exact: once every row has one, it is not updated (see LARGE).
                    settled = self._raise(top[..., None]) and not careful
            self._add(s, tile, keys)

    def _raise(self, top: Tensor) -> bool:
        """Move to a new running maximum and rescale what was summed so far."""
        raised = torch.maximum(self.m, top)
        # A row that has seen nothing yet is shifted by 0: -inf - -inf is NaN.
        new = raised.masked_fill(raised == -torch.inf, 0.0)
        factor = (self.m - new).exp_()
        if self.riders.entropy:
            moved = (self.shift - new)[..., 0] * self.acc[..., self.width]
            self.energy = (self.energy + moved) * factor[..., 0]
        self.acc *= factor
        self.m, self.shift = raised, new
        return bool((raised > -torch.inf).all())

    def _add(self, s: Tensor, tile: Tile, keys: slice) -> None:
        s.sub_(self.shift)
        if self.second is None:
            p = s.exp_()
        else:
            p = torch.exp(s, out=self.second[: s.numel()].view(s.shape))
            if tile.blocked is not None or not self.part.problem.scoring.linear:
                # Masked lanes hold s = -inf, and 0 * -inf is NaN; a bias or score_mod may say -inf too.
                s.clamp_(min=torch.finfo(s.dtype).min)
            self.energy += s.mul_(p).sum(-1)
        problem = self.part.problem
        if problem.dropout:
            self.acc[..., self.width :] += bmm(p, self.v[:, keys, self.width :])
            p = p * dropped(self.part, tile, p)
            values = self.v[:, keys, : self.width]
            self.acc[..., : self.width] += self._mix(p, values, tile)
        elif self.dirty and tile.blocked is not None:
            self.acc += self._mix(p, self.v[:, keys], tile)
        else:
            bmm(p, self.v[:, keys], self.acc, add=True)

    def _mix(self, p: Tensor, v: Tensor, tile: Tile) -> Tensor:
        return bmm(p, v) if not self.dirty or tile.blocked is None else _mix_dirty(p, v)


def _mix_dirty(p: Tensor, v: Tensor) -> Tensor:
    """p @ v where v holds NaN or inf: only nonzero weights may pick them up."""
    mixed = bmm(p, v.nan_to_num(0.0, 0.0, 0.0))
    seen = (p > 0).to(p.dtype)
    plus, minus, nan = (
        bmm(seen, bad.to(p.dtype)) > 0 for bad in (v == torch.inf, v == -torch.inf, v.isnan())
    )
    mixed.masked_fill_(plus, torch.inf)
    mixed.masked_fill_(minus, -torch.inf)
    return mixed.masked_fill_(nan | (plus & minus), torch.nan)
