"""Launching a decode step: split the keys, merge what the parts found."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.engine.problem import Problem, asked_once
from regard.engine.riders import Riders, Streamed
from regard.engine.triton.decode_kernel import best_kernel, decode_kernel, merge_kernel
from regard.engine.triton.operands import Operands

__all__ = ["Decoded", "applicable", "decode", "heaviest"]

MOST_QUERIES, MOST_ROWS = 8, 64
# Programs per multiprocessor: enough loads in flight to keep memory busy.
PER_PROCESSOR = 4
PIECE = 2048


@dataclass(frozen=True)
class Decoded:
    """A decode step, and the keys of its largest scores if they were asked for."""

    streamed: Streamed
    weight: Float[Tensor, "batch heads q top"] | None = None
    key: Int64[Tensor, "batch heads q top"] | None = None


@asked_once
def applicable(problem: Problem) -> bool:
    """A few queries, and a mask that gives each of them one interval of keys."""
    if problem.q_len > MOST_QUERIES or problem.group * problem.q_len > MOST_ROWS:
        return False
    position = torch.arange(problem.q_len) + problem.offset
    return problem.mask is None or problem.mask.spans(position) is not None


def decode(problem: Problem, riders: Riders, top: int = 0) -> Decoded:
    """One step, with the row statistics that ride along and the `top` heaviest keys of each row."""
    p, operands = problem, Operands(problem)
    cut = operands.config("decode")
    table = operands.plan((MOST_QUERIES, cut.block_k))
    visits = operands.visits(table, table.by_query)
    kv_heads, statistics = p.k.shape[1], riders.entropy or riders.distance
    peaks, sinks, keep = riders.peak, riders.first > 0, top > 0 or riders.tops
    rows = max(16, 1 << (p.group * p.q_len - 1).bit_length())
    splits, per_split = _splits(p, cut.block_k)

    def new(*shape: int, wanted: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape if wanted else (1,), dtype=dtype, device=p.q.device)

    lead = (p.batch, kv_heads, rows)
    values = operands.values(cut)
    parts = {
        "ACC": new(*lead, splits, values["V_WIDTH"]),
        **{name: new(*lead, splits) for name in ("TOP", "TOTAL")},
        **{name: new(*lead, splits, wanted=statistics) for name in ("ENERGY", "DISTANCE")},
        "PEAK_KEY": new(*lead, splits, wanted=peaks, dtype=torch.int32),
        "SUNK": new(*lead, splits, wanted=sinks),
    }
    asked = {"STATISTICS": statistics, "PEAKS": peaks, "SINKS": sinks}
    scores = new(p.batch, p.heads, p.q_len, p.k_len, wanted=keep)
    decode_kernel[(splits, kv_heads, p.batch)](
        **operands.pairs(cut),
        **values,
        **operands.sizes,
        **operands.scoring,
        **{name: visits[name] for name in ("LOW", "HIGH", "mask_b", "mask_h")},
        **cut.options,
        **parts,
        SCORES=scores,
        splits=splits,
        per_split=per_split,
        sunk=riders.first,
        ROWS=rows,
        BLOCK_K=cut.block_k,
        KEEP=keep,
        **asked,
    )
    shape = (p.batch, p.heads, p.q_len)
    out, lse = new(*shape, p.v.shape[-1], dtype=p.v.dtype), new(*shape)
    entropy, distance = (new(*shape, wanted=statistics) for _ in range(2))
    peak, peak_key = new(*shape, wanted=peaks), new(*shape, wanted=peaks, dtype=torch.int64)
    mass = new(*shape, wanted=sinks)
    merge_kernel[(p.group * p.q_len, kv_heads, p.batch)](
        **parts,
        SINK=lse if p.sink is None else p.sink.detach(),
        OUT=out,
        LSE=lse,
        ENTROPY=entropy,
        MEAN=distance,
        PEAK=peak,
        PEAK_AT=peak_key,
        MASS=mass,
        q_len=p.q_len,
        heads=p.heads,
        group=p.group,
        splits=splits,
        V_DIM=values["V_DIM"],
        V_WIDTH=values["V_WIDTH"],
        ROWS=rows,
        MOST=max(2, 1 << (splits - 1).bit_length()),
        HAS_SINK=p.sink is not None,
        **asked,
    )
    weight, key = heaviest(scores, lse, top) if top else (None, None)
    streamed = Streamed(
        out=out,
        lse=lse,
        entropy=entropy if riders.entropy else None,
        distance=distance if riders.distance else None,
        peak=peak if peaks else None,
        peak_key=peak_key if peaks else None,
        first=mass if sinks else None,
        # Every key is a class of its own.
        tops=scores if riders.tops else None,
    )
    return Decoded(streamed, weight, key)


def heaviest(
    scores: Float[Tensor, "batch heads q k"], lse: Float[Tensor, "batch heads q"], top: int
) -> tuple[Float[Tensor, "batch heads q top"], Int64[Tensor, "batch heads q top"]]:
    """The heaviest keys of rows whose scores, in units of log 2, are all there.

    The best of every piece first, then the best of those, until one piece holds them all.
    """
    rows, length, device = lse.numel(), scores.shape[3], scores.device
    lse, values, keys = lse.contiguous(), scores, scores
    while True:
        pieces = -(-length // PIECE)
        last = pieces == 1
        best = torch.empty(rows, pieces * top, device=device)
        best_at = torch.empty(best.shape, dtype=torch.int64 if last else torch.int32, device=device)
        best_kernel[(pieces, rows)](
            values,
            keys,
            lse,
            best,
            best_at,
            length,
            pieces,
            COUNT=top,
            PIECE=PIECE,
            FIRST=values is scores,
            LAST=last,
        )
        if last:
            return best.view(*lse.shape, top), best_at.view(*lse.shape, top)
        values, keys, length = best, best_at, pieces * top


def _splits(problem: Problem, block: int) -> tuple[int, int]:
    """How many programs share the keys of one head, and how many keys each gets, in whole blocks."""
    programs = PER_PROCESSOR * _processors(problem.q.device)
    wanted = max(1, programs // (problem.batch * problem.k.shape[1]))
    blocks = -(-problem.k_len // block)
    each = -(-blocks // min(wanted, blocks))
    return -(-blocks // each), each * block


@lru_cache
def _processors(device: torch.device) -> int:
    # The interpreter gets two splits, so that merging them is tested.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
