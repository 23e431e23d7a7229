"""Backend `sdpa`: what PyTorch's fused kernels do well is left to them.

A structured mask does not fit those kernels, but each block of queries does: it gets only the keys it can
see, gathered, and one fused call. So a window or a document mask costs what its pairs cost, at fused speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.engine.parts import RAGGED
from regard.engine.problem import Problem, asked_once
from regard.engine.riders import Streamed
from regard.engine.schedule import Row, chunks, schedule
from regard.engine.scoring import Place
from regard.engine.sink import with_sink
from regard.engine.sums import add_exp, over_rows
from regard.errors import BackendError
from regard.masks import Causal, Mask

__all__ = ["backward", "forward", "is_plain", "plain", "refusal"]

# PyTorch's CPU kernel that also returns the log-sum-exp.
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BLOCK = 256
# From this ratio of unmasked to masked keys on, two calls and a merge beat one call that masks them all.
SPLIT = 4
# Up to this many rows the query heads of a group are stacked as rows: their keys are then read once.
FOLD = 64
# The kernel adds the key gradients of a group's heads one after the other; more than this round too often.
IN_A_ROW = 32


def refusal(problem: Problem) -> str | None:
    """Why this backend cannot run a problem, or None if it can."""
    scoring = problem.scoring
    if not scoring.score.is_dot:
        return f"PyTorch's kernels compute dot products, not {type(scoring.score).__name__}"
    if not scoring.fusable:
        return "PyTorch's kernels know no soft cap, score_mod, structured or trainable bias"
    if problem.dropout:
        return "dropout would make PyTorch build the whole map"
    if problem.q.shape[-1] != problem.v.shape[-1]:
        return f"q has dim {problem.q.shape[-1]}, v has {problem.v.shape[-1]}; PyTorch's kernel wants one dim"
    if 0 in (problem.batch, problem.q_len, problem.k_len, problem.q.shape[-1]):
        return "a length is zero"
    if problem.q.device.type != "cpu" and (not is_plain(problem) or problem.sink is not None):
        return "off the CPU only unmasked and causal calls go to PyTorch"
    return None


@asked_once
def is_plain(problem: Problem) -> bool:
    """One call of PyTorch's own function computes it: no mask, or the causal mask of PyTorch's alignment."""
    # The kernel scales after it has put -inf where the causal mask forbids: a scale of 0 or less undoes that.
    causal = problem.scoring.scale > 0 and _is_causal(problem)
    return problem.scoring.linear and (problem.mask is None or causal)


def _is_causal(problem: Problem) -> bool:
    return type(problem.mask) is Causal and problem.mask.shift == -problem.offset


def plain(problem: Problem) -> Tensor:
    """PyTorch's own attention, with its own gradient."""
    q, k, v = map(_packed, (problem.q, problem.k, problem.v))
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        is_causal=problem.mask is not None,
        scale=problem.scoring.scale,
        enable_gqa=problem.group > 1,
    )


@dataclass(frozen=True)
class _Call:
    """One fused call: some batch rows, a block of queries, the keys it sees, and an additive mask."""

    batch: range
    queries: range
    runs: tuple[range, ...]
    causal: bool
    mask: Float[Tensor, "#batch #heads q k"] | None
    dead: Bool[Tensor, "#batch #heads q"] | None

    def rows(self, x: Tensor) -> Tensor:
        return x[self.batch.start : self.batch.stop, :, self.queries.start : self.queries.stop]

    def keys(self, x: Tensor) -> Tensor:
        """The visible keys, a view when they are contiguous."""
        x = x[self.batch.start : self.batch.stop]
        first, last = self.runs[0].start, self.runs[-1].stop
        if last - first == sum(map(len, self.runs)):
            return x[:, :, first:last]
        return torch.cat([x[:, :, run.start : run.stop] for run in self.runs], 2)

    def add_keys(self, total: Tensor, x: Tensor) -> None:
        """Add gradients of the gathered keys back where they came from."""
        start = 0
        for run in self.runs:
            total[self.batch.start : self.batch.stop, :, run.start : run.stop] += x[
                :, :, start : start + len(run)
            ]
            start += len(run)


def _calls(problem: Problem) -> Iterator[list[_Call]]:
    """For each block of queries the calls whose results are merged; empty where nothing is visible."""
    batch = range(problem.batch)
    if is_plain(problem):
        causal = problem.mask is not None
        yield [_Call(batch, range(problem.q_len), (range(problem.k_len),), causal, None, None)]
        return
    mask = problem.mask
    ragged = mask is not None and (mask.batch or 1) > 1 and problem.k_len > RAGGED
    for rows in chunks(batch, 1 if ragged else len(batch)):
        own = mask.select(rows.start) if ragged and mask is not None else mask
        builder = _MaskBuilder(problem, own, rows)
        for row in schedule(own, problem.q_len, problem.k_len, BLOCK, problem.offset):
            yield [_Call(rows, row.queries, runs, False, *builder.build(row, runs)) for runs in _groups(row)]


def _groups(row: Row) -> list[tuple[range, ...]]:
    runs = tuple(sorted(row.full + row.partial, key=lambda run: run.start))
    full = sum(map(len, row.full))
    if row.partial and full >= SPLIT * (row.keys - full):
        return [row.full, row.partial]
    return [runs] if runs else []


class _MaskBuilder:
    """Additive masks for the calls of one schedule; tiles that look alike are built once."""

    def __init__(self, problem: Problem, mask: Mask | None, batch: range) -> None:
        self.problem, self.mask, self.batch = problem, mask, batch
        self.seen: dict[Any, tuple[Tensor, Tensor | None]] = {}

    def build(self, row: Row, runs: tuple[range, ...]) -> tuple[Tensor | None, Tensor | None]:
        """(additive mask or None, rows that see nothing or None)."""
        bias = self.problem.scoring.bias
        masked = any(run in row.partial for run in runs)
        if bias is None and not masked:
            return None, None
        if bias is not None or self.mask is None or not self.mask.relative:
            return self._fresh(row, runs)
        key = (
            len(row.queries),
            tuple((run.start - row.queries.start, len(run), run in row.full) for run in runs),
        )
        if key not in self.seen:
            self.seen[key] = self._fresh(row, runs)
        return self.seen[key]

    def _fresh(self, row: Row, runs: tuple[range, ...]) -> tuple[Tensor, Tensor | None]:
        tiles = [self._tile(row, run) for run in runs]
        shape = torch.broadcast_shapes(*(tile.shape[:3] for tile in tiles))
        mask = torch.cat([tile.expand(*shape, -1) for tile in tiles], -1)
        # The kernel reports lse 0 for a row that sees nothing; regard says -inf.
        sees_some = self.problem.scoring.bias is None and any(run in row.full for run in runs)
        dead = None if sees_some else (mask == -torch.inf).all(-1)
        return mask, dead

    def _tile(self, row: Row, run: range) -> Float[Tensor, "#batch #heads q k"]:
        p = self.problem
        place = Place(self.batch, range(p.heads), row.queries, run, p.offset, p.q.device)
        bias = p.scoring.bias_tile(place)
        tile = torch.zeros((1, 1, len(row.queries), len(run)), dtype=p.accumulate, device=p.q.device)
        if bias is not None:
            tile = tile + bias
        if run in row.partial and self.mask is not None:
            tile = tile.masked_fill(~place.allowed(self.mask), -torch.inf)
        return tile


def forward(problem: Problem) -> tuple[Float[Tensor, "batch heads q dim"], Float[Tensor, "batch heads q"]]:
    """Output and log-sum-exp of every row."""
    if problem.sink is None:
        return _without_sink(problem)
    # In float32, because a sink shrinks the output afterwards, and that is to be rounded once.
    wide = replace(
        problem, **{name: getattr(problem, name).to(problem.accumulate) for name in ("q", "k", "v")}
    )
    sunk = with_sink(problem.sink, Streamed(*_without_sink(wide)), problem.q.dtype)
    return sunk.out, sunk.lse


def _without_sink(problem: Problem) -> tuple[Tensor, Tensor]:
    if is_plain(problem):
        [[call]] = _calls(problem)
        out, lse = _attend(_operator(FORWARD), problem, call)
        return out, lse.contiguous()
    return _by_blocks(problem)


def _by_blocks(problem: Problem) -> tuple[Tensor, Tensor]:
    operator = _operator(FORWARD)
    out = torch.zeros_like(problem.q, memory_format=torch.contiguous_format)
    lse = problem.q.new_full(problem.q.shape[:3], -torch.inf, dtype=problem.accumulate)
    for calls in _calls(problem):
        for number, call in enumerate(calls):
            part, part_lse = _attend(operator, problem, call)
            if call.dead is not None:
                part_lse = part_lse.masked_fill(call.dead, -torch.inf)
            if number:
                part, part_lse = _merge(call.rows(out), call.rows(lse), part, part_lse)
            call.rows(out).copy_(part)
            call.rows(lse).copy_(part_lse)
    return out, lse


def _attend(operator: Callable[..., Any], problem: Problem, call: _Call) -> tuple[Tensor, Tensor]:
    q, k, v = map(_packed, (call.rows(problem.q), call.keys(problem.k), call.keys(problem.v)))
    mask, scale, group = call.mask, problem.scoring.scale, problem.group
    fold = 1 < group and group * q.shape[2] <= FOLD and not call.causal
    shape = q.shape
    if fold:
        q = q.reshape(shape[0], shape[1] // group, group * shape[2], shape[3])
        mask = None if mask is None else _fold_mask(mask, group)
    out, lse = operator(q, k, v, 0.0, call.causal, attn_mask=_as_operand(mask, q), scale=scale)
    return (out.reshape(shape), lse.reshape(shape[:3])) if fold else (out, lse)


def _fold_mask(mask: Tensor, group: int) -> Tensor:
    if mask.shape[1] == 1:
        return mask.repeat(1, 1, group, 1)
    return mask.reshape(mask.shape[0], mask.shape[1] // group, group * mask.shape[2], mask.shape[3])


def _as_operand(mask: Tensor | None, q: Tensor) -> Tensor | None:
    """The operator takes masks in float32 or in q's dtype; half-precision masks would round a bias."""
    return None if mask is None else mask.to(torch.float64 if q.dtype == torch.float64 else torch.float32)


def _merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Two partial softmaxes become one; a side that saw nothing (lse -inf) weighs nothing."""
    both = add_exp(lse, part_lse)
    safe = both.masked_fill(both == -torch.inf, 0.0)
    weight, part_weight = (lse - safe).exp(), (part_lse - safe).exp()
    merged = out.to(both.dtype) * weight[..., None] + part.to(both.dtype) * part_weight[..., None]
    return merged.to(out.dtype), both


def backward(
    problem: Problem, out: Tensor, lse: Tensor, d_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and the sink, call by call, recomputed from the log-sum-exp of all keys."""
    operator = _operator(f"{FORWARD}_backward")
    dtype = problem.accumulate
    dq = torch.zeros_like(problem.q, dtype=dtype)
    dk, dv = torch.zeros_like(problem.k, dtype=dtype), torch.zeros_like(problem.v, dtype=dtype)
    # exp(s - inf) = 0: a row that sees nothing sends nothing back.
    bound = lse.masked_fill(lse == -torch.inf, torch.inf)
    parts = _parts(problem.group)
    for call in (call for calls in _calls(problem) for call in calls):
        grads = operator(
            call.rows(d_out),
            _packed(call.rows(problem.q)),
            _apart(_packed(call.keys(problem.k)), parts),
            _apart(_packed(call.keys(problem.v)), parts),
            call.rows(out),
            call.rows(bound),
            0.0,
            call.causal,
            attn_mask=_as_operand(call.mask, problem.q),
            scale=problem.scoring.scale,
        )
        call.rows(dq).add_(grads[0])
        call.add_keys(dk, _together(grads[1], parts))
        call.add_keys(dv, _together(grads[2], parts))
    d_sink = None
    if problem.sink is not None:
        weight = (problem.sink.to(dtype)[:, None] - lse).exp()
        delta = (d_out.to(dtype) * out.to(dtype)).sum(-1)
        d_sink = -over_rows(weight * delta).to(problem.sink.dtype)
    return dq.to(problem.q.dtype), dk.to(problem.k.dtype), dv.to(problem.v.dtype), d_sink


def _parts(group: int) -> int:
    """How many equal parts of at most IN_A_ROW heads a group is cut into, as few as can be."""
    return next(parts for parts in range(1, group + 1) if group % parts == 0 and group // parts <= IN_A_ROW)


def _apart(x: Float[Tensor, "batch kv_heads k dim"], parts: int) -> Float[Tensor, "batch more k dim"]:
    """Each key head as often as its group has parts."""
    return x[:, :, None].expand(-1, -1, parts, -1, -1).flatten(1, 2)


def _together(x: Float[Tensor, "batch more k dim"], parts: int) -> Float[Tensor, "batch kv_heads k dim"]:
    return x if parts == 1 else x.unflatten(1, (-1, parts)).sum(2)


def _packed(x: Tensor) -> Tensor:
    """The operators read rows as if they were packed, and PyTorch's function would build the whole map."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _operator(name: str) -> Callable[..., Any]:
    """An operator of PyTorch's that has no public name, and so may go."""
    try:
        return getattr(torch.ops.aten, name)
    except AttributeError:
        raise BackendError(f"this PyTorch ({torch.__version__}) lacks {name}; use backend='torch'.") from None
