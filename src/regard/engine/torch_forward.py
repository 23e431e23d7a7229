"""Backend `torch`, forward: attention by streaming tiles, in plain torch operations, on every device.

This backend defines truth. It never holds more than one tile of scores, keeps every sum in float32 or better,
adds in a fixed order, and supports everything the engine can say. What remains of the map is one log-sum-exp
per row, from which every cell can be computed again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.engine.gemm import bmm
from regard.engine.parts import Part, Tile, parts
from regard.engine.problem import Problem
from regard.engine.schedule import Row

__all__ = ["Riders", "Streamed", "dropped", "finite", "forward"]

# float32 overflows near 3e38; row sums of exp(s - m) beyond this make the block stream again, carefully.
LARGE = 1e30


@dataclass(frozen=True)
class Riders:
    """Row statistics that travel with the forward pass.

    columns: extra value columns g; the pass also returns sum_j w_ij g_j.
    energy: also return the mean score under the weights, E[s].
    peak: also return the largest score of each row and its key.
    """

    columns: Float[Tensor, "batch kv_heads k extra"] | None = None
    energy: bool = False
    peak: bool = False


@dataclass(frozen=True)
class Streamed:
    """What one forward pass returns, per query row."""

    out: Float[Tensor, "batch heads q v_dim"]
    lse: Float[Tensor, "batch heads q"]
    columns: Float[Tensor, "batch heads q extra"] | None = None
    energy: Float[Tensor, "batch heads q"] | None = None
    peak: Float[Tensor, "batch heads q"] | None = None
    peak_key: Int[Tensor, "batch heads q"] | None = None


def forward(problem: Problem, riders: Riders = Riders()) -> Streamed:  # noqa: B008 - frozen
    """Output and log-sum-exp of every row, and what rides along."""
    q, dtype = problem.q, problem.accumulate
    shape = (problem.batch, problem.heads, problem.q_len)
    out = q.new_empty((*shape, problem.v.shape[-1]))
    lse = q.new_empty(shape, dtype=dtype)
    extra = 0 if riders.columns is None else riders.columns.shape[-1]
    columns = q.new_empty((*shape, extra), dtype=dtype)
    energy = q.new_empty(shape, dtype=dtype) if riders.energy else None
    peak = q.new_empty(shape, dtype=dtype) if riders.peak else None
    peak_key = q.new_empty(shape, dtype=torch.long) if riders.peak else None
    dirty = problem.mask is not None and not finite(problem.v)
    for part in parts(problem):
        stream = _Stream(part, riders, dirty)
        for row in part.rows():
            total = stream.run(row)
            weights = total.reciprocal().masked_fill_(total == 0, 0.0)
            mixed = stream.acc * weights[..., None]
            width = out.shape[-1]
            part.put(out, row.queries, mixed[..., :width])
            part.put(columns, row.queries, mixed[..., width + 1 :])
            # log 0 = -inf: a row with nothing to attend to has lse -inf by itself, since its m is -inf.
            part.put(lse, row.queries, stream.m[..., 0] + total.log())
            if energy is not None:
                part.put(energy, row.queries, stream.energy * weights + stream.shift[..., 0])
            if peak is not None and peak_key is not None:
                part.put(peak, row.queries, stream.peak)
                part.put(peak_key, row.queries, stream.find_peaks(row))
    if problem.sink is not None:
        out, lse, columns, energy = _with_sink(problem.sink, out, lse, columns, energy)
    return Streamed(out, lse, columns if extra else None, energy, peak, peak_key)


def _with_sink(sink: Tensor, out: Tensor, lse: Tensor, columns: Tensor, energy: Tensor | None):
    """A sink is a key with a logit and no value: it only takes weight away from the others.

    `energy` becomes the sum over real keys of w_ij s_ij, no longer a mean: weights then sum to less than one.
    """
    with_sink = torch.logaddexp(lse, sink.to(lse.dtype)[:, None])
    kept = (lse - with_sink).exp()
    energy = None if energy is None else energy * kept
    return out * kept[..., None].to(out.dtype), with_sink, columns * kept[..., None], energy


class _Stream:
    """Online softmax over the tiles of one block of queries after another."""

    def __init__(self, part: Part, riders: Riders, dirty: bool) -> None:
        p = part.problem
        self.part, self.riders, self.dirty = part, riders, dirty
        self.k = part.keys(p.k)
        v = part.keys(p.v)
        ones = torch.ones_like(v[..., :1])
        extra = [] if riders.columns is None else [part.keys(riders.columns)]
        # The ones column makes the second product return the row sums too.
        self.v = torch.cat([v, ones, *extra], -1)
        self.width = v.shape[-1]
        self.buffer = part.buffer()
        self.second = torch.empty_like(self.buffer) if riders.energy else None

    def run(self, row: Row) -> Float[Tensor, "stacks rows"]:
        """Stream one block; returns the row sums. Leaves acc, m, energy and peak behind."""
        total = self._stream(row, careful=False)
        if not bool((total < LARGE).all()):
            total = self._stream(row, careful=True)
        return total

    def _stream(self, row: Row, careful: bool) -> Tensor:
        part = self.part
        q = part.scaled(part.queries(part.problem.q, row.queries))
        self.acc = q.new_zeros(*q.shape[:2], self.v.shape[-1])
        self.m = q.new_full((*q.shape[:2], 1), -torch.inf)
        self.shift = torch.zeros_like(self.m)
        self.energy = q.new_zeros(q.shape[:2])
        self.peak = q.new_full(q.shape[:2], -torch.inf)
        self.peak_tile = torch.zeros(q.shape[:2], dtype=torch.long, device=q.device)
        settled = False
        for number, tile in enumerate(part.tiles(row)):
            keys = slice(tile.keys.start, tile.keys.stop)
            s = part.scores(q, self.k[:, keys], tile, self.buffer)
            if self.riders.peak or not settled:
                top = s.amax(-1, keepdim=True)
                if self.riders.peak:
                    self._note_peak(top[..., 0], number)
                if careful or not settled:
                    # The maximum only has to be near: once every row has one, it is kept (see LARGE).
                    settled = self._raise(top) and not careful
            self._add(s, tile, keys)
        return self.acc[..., self.width]

    def _raise(self, top: Tensor) -> bool:
        """Move to a new running maximum and rescale what was summed so far."""
        raised = torch.maximum(self.m, top)
        # A row that has seen nothing yet is shifted by 0: -inf - -inf is NaN.
        new = raised.masked_fill(raised == -torch.inf, 0.0)
        factor = (self.m - new).exp_()
        if self.riders.energy:
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
            if tile.blocked is not None:
                # Masked lanes hold s = -inf, and 0 * -inf is NaN.
                s.masked_fill_(s == -torch.inf, 0.0)
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

    def _note_peak(self, top: Tensor, number: int) -> None:
        better = top > self.peak
        self.peak = torch.where(better, top, self.peak)
        self.peak_tile.masked_fill_(better, number)

    def find_peaks(self, row: Row) -> Int[Tensor, "stacks rows"]:
        """The key of each row's largest score: look again, only into the tile that held it. -1 if none."""
        part = self.part
        q = part.scaled(part.queries(part.problem.q, row.queries))
        found = torch.full(q.shape[:2], -1, dtype=torch.long, device=q.device)
        for number, tile in enumerate(part.tiles(row)):
            here = (self.peak_tile == number) & (self.peak > -torch.inf)
            if bool(here.any()):
                s = part.scores(q, self.k[:, tile.keys.start : tile.keys.stop], tile, self.buffer)
                found = torch.where(here, s.argmax(-1) + tile.keys.start, found)
        return found


def _mix_dirty(p: Tensor, v: Tensor) -> Tensor:
    """p @ v where v holds NaN or inf: only weights that are not zero may pick them up."""
    mixed = bmm(p, v.nan_to_num(0.0, 0.0, 0.0))
    seen = (p > 0).to(p.dtype)
    plus, minus, nan = (
        bmm(seen, bad.to(p.dtype)) > 0 for bad in (v == torch.inf, v == -torch.inf, v.isnan())
    )
    mixed.masked_fill_(plus, torch.inf)
    mixed.masked_fill_(minus, -torch.inf)
    return mixed.masked_fill_(nan | (plus & minus), torch.nan)


def dropped(part: Part, tile: Tile, like: Tensor) -> Tensor:
    """The dropout factors of a tile, 0 or 1/(1-p); the same on every visit, forward and backward."""
    p = part.problem
    generator = torch.Generator(device=like.device)
    place = (part.batch.start, part.kv_heads.start, tile.rows.start, tile.keys.start)
    generator.manual_seed(hash((p.seed, *place)) & (2**63 - 1))
    kept = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device) >= p.dropout
    return kept.to(like.dtype) / (1.0 - p.dropout)


def finite(*tensors: Tensor) -> bool:
    """No NaN and no inf anywhere; one sum each, since both survive summation."""
    return all(bool(x.sum(dtype=torch.float64).isfinite()) for x in tensors)
