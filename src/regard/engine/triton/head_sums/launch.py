"""Launches the kernels over the sum of all heads: shared keys, and the sums and gradients of a KL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.schedule import schedule
from regard.engine.triton.configs import WIDTHS, width
from regard.engine.triton.head_sums.kernel import divergence_kernel, shared_keys_kernel, tiles_kernel
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands, packed
from regard.stats import Indexer, Scores, Student
from regard.stats.head_sum import heaviest

__all__ = ["divergence_sums", "shared_keys", "student_gradients"]

# The most keys of a row that are listed in registers; more are selected from bands of the summed map.
MOST_LISTED = 64
# Cells of a band of the summed map, and of the scores of a student that is no `Indexer`.
BAND_CELLS, SCORE_CELLS = 1 << 25, 1 << 22
# Products of an indexer's band of scores: its gradients take a few such tensors.
INDEX_CELLS = 1 << 27
# The most parts of a row that programs share, and the programs that a launch should have.
MOST_PARTS, PROGRAMS = 32, 1024
# Lists are shorter if a program reads more keys, so lists have fewer parts.
LISTING_PROGRAMS = 512


def shared_keys(
    problem: Problem, lse: Float[Tensor, "batch heads q"], k: int
) -> tuple[Float[Tensor, "batch q top"], Int64[Tensor, "batch q top"]]:
    """The k keys of each row with the largest weight summed over heads, largest first, on ties the earlier
    key first; weight 0 and key -1 where there are fewer."""
    state = _HeadSums(problem, lse)
    if k > MOST_LISTED:
        return _selected(state, k)
    p, chunk = problem, state.chunk(state.table.q_blocks, LISTING_PROGRAMS)
    parts = -(-state.table.k_blocks // chunk)
    weight = lse.new_empty(p.batch, p.q_len, parts, k)
    key = torch.empty(weight.shape, dtype=torch.int64, device=lse.device)
    start(
        shared_keys_kernel,
        (state.table.q_blocks, parts, p.batch),
        **state.arguments,
        WEIGHT=weight,
        KEY=key,
        first_block=0,
        chunk=chunk,
        TOP=max(2, 1 << (k - 1).bit_length()),
        TAKE=k,
    )
    if parts == 1:
        return weight[:, :, 0], key[:, :, 0]
    # Parts come in the order of their keys, and a stable sort keeps the earlier of equal weights in front.
    weight, order = weight.flatten(2).sort(dim=-1, descending=True, stable=True)
    key = key.flatten(2).gather(-1, order[..., :k])
    return weight[..., :k].contiguous(), key


def divergence_sums(
    problem: Problem, lse: Float[Tensor, "batch heads q"], student: Student
) -> Float[Tensor, "sums parts batch q"]:
    """The sums of a KL, in parts of each row: mass, Σ m log m, Σ m t, Σ exp(t - top), top."""
    state, p = _HeadSums(problem, lse), problem
    chunk = max(1, -(-state.table.k_blocks // MOST_PARTS))
    parts = -(-state.table.k_blocks // chunk)
    sums = lse.new_zeros(5, parts, p.batch, p.q_len)
    sums[4] = -torch.inf
    for band, taught in _scores_by_band(state, student):
        start(
            divergence_kernel,
            (band.blocks, parts, p.batch),
            **state.arguments,
            **taught,
            PARTS=sums,
            first_block=band.first_block,
            chunk=chunk,
        )
    return sums


def student_gradients(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    student: Student,
    wanted: Sequence[int],
    rows: tuple[Float[Tensor, "batch q"], Float[Tensor, "batch q"], Float[Tensor, "batch q"]],
) -> list[Tensor | None]:
    """The gradients of the student's tensors numbered `wanted`, None for the others.

    `rows` are the mass of each row, the log-sum-exp of the student's scores, and the upstream gradient.
    """
    state, pulls = _HeadSums(problem, lse), _Pulls(*rows)
    if isinstance(student, Scores) and _loadable(student.scores, problem):
        return [_gradient_of_scores(state, student, pulls)]
    return _gradients_by_band(state, student, wanted, pulls)


class _HeadSums:
    """One problem: its tiles, and the arguments that all kernels share."""

    def __init__(self, problem: Problem, lse: Tensor) -> None:
        self.problem = problem
        operands = Operands(replace(problem, v=problem.k))
        cut = operands.config("heads")
        self.table = operands.plan(cut.blocks)
        visits = operands.visits(self.table, self.table.by_query)
        self.arguments: dict[str, Any] = dict(
            **operands.pairs(cut, both=True),
            **operands.sizes,
            **operands.scoring,
            **visits,
            **cut.options,
            LSE=lse.contiguous(),
            PER_HEAD=visits["mask_h"] != 0,
        )

    def chunk(self, blocks: int, programs: int = PROGRAMS) -> int:
        """How many blocks of keys a program reads, if `blocks` blocks of queries are launched."""
        parts = -(-programs // max(1, blocks * self.problem.batch))
        return max(1, -(-self.table.k_blocks // min(parts, self.table.k_blocks, MOST_PARTS)))

    def bands(self, cells: int) -> Iterator[_Band]:
        """Bands of queries with at most `cells` pairs, or one block of queries, and the keys they see."""
        p, block_q, block_k = self.problem, self.table.block_q, self.table.block_k
        rows = max(1, cells // (p.batch * p.k_len * block_q)) * block_q
        for row in schedule(p.mask, p.q_len, p.k_len, rows, p.offset):
            runs = (*row.full, *row.partial)
            if runs:
                first = min(run.start for run in runs) // block_k * block_k
                keys = range(first, max(run.stop for run in runs))
                yield _Band(row.queries, keys, row.queries.start // block_q, -(-len(row.queries) // block_q))

    def store(self, band: _Band, out: Tensor, batch: range, **more: Any) -> None:
        """Store the visited tiles of a band: the summed weights, or the gradients of a student's scores."""
        chunk = self.chunk(band.blocks)
        named = {**self.arguments, **_NOTHING_TAUGHT, **dict.fromkeys(_TENSORS, self.arguments["LSE"])}
        named |= {"first_key": band.keys.start, "stop_key": band.keys.stop, **more}
        start(
            tiles_kernel,
            (band.blocks, -(-self.table.k_blocks // chunk), len(batch)),
            **named,
            OUT=out,
            out_b=out.stride(0) if out.shape[0] > 1 else 0,
            out_q=out.stride(1),
            first_block=band.first_block,
            first_batch=batch.start,
            chunk=chunk,
            GRADIENT=bool(more),
        )


@dataclass(frozen=True)
class _Band:
    """Some blocks of queries, and the range of keys that they see."""

    rows: range
    keys: range
    first_block: int
    blocks: int


@dataclass(frozen=True)
class _Pulls:
    """Of each row: its mass, the log-sum-exp of the student's scores, and the upstream gradient."""

    mass: Float[Tensor, "batch q"]
    norm: Float[Tensor, "batch q"]
    upstream: Float[Tensor, "batch q"]

    @property
    def arguments(self) -> dict[str, Tensor]:
        """SHARE is 1 / mass; rows without mass have a NORM of inf and a PULL of 0, and gradients of 0."""
        dead = self.mass <= 0
        return {
            "NORM": self.norm.masked_fill(dead, torch.inf).contiguous(),
            "SHARE": self.mass.reciprocal().masked_fill(dead, 0.0).contiguous(),
            "PULL": self.upstream.to(self.mass.dtype).masked_fill(dead, 0.0).contiguous(),
        }


_TENSORS = ("SCORES", "INDEX_Q", "INDEX_K", "INDEX_W", "NORM", "SHARE", "PULL")
_NOTHING_TAUGHT: dict[str, Any] = {
    **dict.fromkeys(("scores_b", "scores_q", "scores_k", "scores_first", "first_key", "stop_key"), 0),
    **dict.fromkeys(("index_q_b", "index_q_h", "index_q_n", "index_k_b", "index_k_n"), 0),
    **dict.fromkeys(("index_w_b", "index_w_h", "index_w_n", "index_heads"), 0),
    "INDEXED": False,
    "INDEX_DIM": WIDTHS[0],
    "INDEX_WIDTH": WIDTHS[0],
    "ADD": False,
}


def _selected(state: _HeadSums, k: int) -> tuple[Tensor, Tensor]:
    """The same for more keys than fit into registers: selected from bands of the summed map."""
    p, device = state.problem, state.problem.q.device
    weight = torch.zeros(p.batch, p.q_len, k, dtype=torch.float32, device=device)
    key = torch.full(weight.shape, -1, dtype=torch.int64, device=device)
    for band in state.bands(BAND_CELLS):
        out = torch.zeros(p.batch, len(band.rows), len(band.keys), dtype=torch.float32, device=device)
        state.store(band, out, range(p.batch))
        listed = min(k, len(band.keys))
        here = slice(band.rows.start, band.rows.stop)
        weight[:, here, :listed], key[:, here, :listed] = heaviest(out, listed, band.keys.start)
    return weight, key.masked_fill_(weight == 0, -1)


def _gradient_of_scores(state: _HeadSums, student: Scores, pulls: _Pulls) -> Tensor:
    """The gradient of given scores; if the batch rows share them, one row after the other adds its own."""
    p, scores, given = state.problem, student.scores.detach(), pulls.arguments
    found = torch.zeros(scores.shape, dtype=torch.float32, device=scores.device)
    everything = _Band(range(p.q_len), range(p.k_len), 0, state.table.q_blocks)
    shared = scores.shape[0] == 1 and p.batch > 1
    for batch in [range(row, row + 1) for row in range(p.batch)] if shared else [range(p.batch)]:
        state.store(everything, found, batch, **given, **_given_scores(scores), ADD=shared)
    return found.to(scores.dtype)


def _gradients_by_band(
    state: _HeadSums, student: Student, wanted: Sequence[int], pulls: _Pulls
) -> list[Tensor | None]:
    """The gradients of any student: those of its scores by the kernel, the rest by PyTorch, band by band.

    The kernel computes an indexer's scores itself, as it did for the KL: scores in half precision would not
    fit the log-sum-exp, and the error of an exponential is the absolute error of its score.
    """
    p, given = state.problem, pulls.arguments
    tensors, everyone = student.parameters(), range(state.problem.batch)
    sums = {at: torch.zeros_like(tensors[at], dtype=_sum_dtype(tensors[at])) for at in wanted}
    indexed = _indexed(student) if isinstance(student, Indexer) and _computable(student, p) else None
    cells = INDEX_CELLS // max(1, student.q.shape[1]) if isinstance(student, Indexer) else SCORE_CELLS
    for band in state.bands(cells):
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(at in wanted) for at, x in enumerate(tensors)]
            scores = student.on(tuple(leaves)).tile(everyone, band.rows, band.keys).expand(p.batch, -1, -1)
        taught = indexed or _given_scores(scores.detach().to(p.q.device, torch.float32), band.rows.start)
        down = torch.zeros(scores.shape, dtype=torch.float32, device=p.q.device)
        state.store(band, down, everyone, **given, **taught)
        parts = torch.autograd.grad(scores, [leaves[at] for at in wanted], down.to(scores))
        for at, part in zip(wanted, parts, strict=True):
            sums[at].add_(part)
    return [sums[at].to(x.dtype) if at in sums else None for at, x in enumerate(tensors)]


def _scores_by_band(state: _HeadSums, student: Student) -> Iterator[tuple[_Band, dict[str, Any]]]:
    """Bands of queries with the arguments that give their scores; one band if kernels can compute them."""
    p, table = state.problem, state.table
    nothing = dict.fromkeys(_TENSORS[:4], state.arguments["LSE"]) | _NOTHING_TAUGHT
    del nothing["ADD"]
    everything = _Band(range(p.q_len), range(p.k_len), 0, table.q_blocks)
    if isinstance(student, Scores) and _loadable(student.scores, p):
        whole = {"first_key": 0, "stop_key": p.k_len}
        yield everything, {**nothing, **_given_scores(student.scores.detach()), **whole}
    elif isinstance(student, Indexer) and _computable(student, p):
        yield everything, {**nothing, **_indexed(student)}
    else:
        for band in state.bands(SCORE_CELLS):
            scores = student.tile(range(p.batch), band.rows, band.keys).expand(p.batch, -1, -1)
            taught = scores.detach().to(p.q.device, torch.float32)
            keys = {"first_key": band.keys.start, "stop_key": band.keys.stop}
            yield band, {**nothing, **_given_scores(taught, band.rows.start), **keys}


def _given_scores(scores: Tensor, first: int = 0) -> dict[str, Any]:
    """The arguments of scores that are in memory, of the queries from `first` on."""
    return {
        "SCORES": scores,
        "scores_b": scores.stride(0) if scores.shape[0] > 1 else 0,
        "scores_q": scores.stride(1),
        "scores_k": scores.stride(2),
        "scores_first": first,
    }


def _indexed(student: Indexer) -> dict[str, Any]:
    """The arguments of an indexer, whose scores the kernel computes."""
    q, k, weights = packed(student.q), packed(student.k), student.weights.detach()
    return {
        "INDEX_Q": q,
        "INDEX_K": k,
        "INDEX_W": weights,
        **dict(zip(("index_q_b", "index_q_h", "index_q_n"), q.stride(), strict=False)),
        **dict(zip(("index_k_b", "index_k_n"), k.stride(), strict=False)),
        **dict(zip(("index_w_b", "index_w_h", "index_w_n"), weights.stride(), strict=True)),
        "index_heads": q.shape[1],
        "INDEXED": True,
        "INDEX_DIM": q.shape[3],
        "INDEX_WIDTH": width(q.shape[3]),
    }


def _sum_dtype(x: Tensor) -> torch.dtype:
    """The dtype of sums of gradients: never half precision."""
    return torch.promote_types(x.dtype, torch.float32)


def _loadable(scores: Tensor, problem: Problem) -> bool:
    """Whether a kernel can load a student's scores: they are floating-point numbers on the same device."""
    return scores.device == problem.q.device and scores.is_floating_point()


def _computable(student: Indexer, problem: Problem) -> bool:
    """Whether a kernel can compute an indexer's scores."""
    q, k, weights = student.parameters()
    same = q.dtype == k.dtype and all(x.device == problem.q.device for x in (q, k, weights))
    return same and q.dtype.itemsize <= 4 and 0 < q.shape[3] <= WIDTHS[-1] and weights.is_floating_point()
