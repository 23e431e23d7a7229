"""Launches the kernels of a decode step: attention over splits of the keys, then a merge."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from regard.engine.problem import Problem, asked_once
from regard.engine.riders import Riders, Streamed
from regard.engine.triton.decode.kernel import decode_kernel, largest_kernel, merge_kernel, rescore_kernel
from regard.engine.triton.launch.start import start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import has_intervals, intervals
from regard.engine.triton.support import MAX_DECODE_QUERIES
from regard.memo import remembered

__all__ = ["applicable", "decode", "top_keys_from_tiles"]

MOST_ROWS = 64
# Programs per multiprocessor: enough loads in flight to keep memory busy.
PER_PROCESSOR = 2
PIECE = 2048


@asked_once
def applicable(problem: Problem) -> bool:
    """Whether a problem has few queries and a mask that gives each of them one interval of keys."""
    if problem.q_len > MAX_DECODE_QUERIES or problem.group * problem.q_len > MOST_ROWS:
        return False
    return has_intervals(problem)


def decode(problem: Problem, riders: Riders) -> Streamed:
    """One decode step with its row statistics; for top keys it returns the maximum of each tile of keys."""
    p, operands = problem, Operands(problem)
    cut = operands.config("decode")
    kv_heads, statistics = p.k.shape[1], riders.entropy or riders.distance
    max_scores, first_weights, tiles = riders.max_score, riders.first > 0, -(-p.k_len // cut.block_k)
    rows = max(16, 1 << (p.group * p.q_len - 1).bit_length())
    splits, per_split, most = _splits(p, cut.block_k)

    def new(*shape: int, wanted: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape if wanted else (1,), dtype=dtype, device=p.q.device)

    lead = (p.batch, kv_heads, rows)
    values = operands.values(cut)
    parts = {
        "ACC": new(*lead, splits, values["V_WIDTH"]),
        **{name: new(*lead, splits) for name in ("TOP", "TOTAL")},
        **{name: new(*lead, splits, wanted=statistics) for name in ("ENERGY", "DISTANCE")},
        "SPLIT_ARGMAX": new(*lead, splits, wanted=max_scores, dtype=torch.int32),
        "SPLIT_FIRST_WEIGHT": new(*lead, splits, wanted=first_weights),
    }
    asked = {"STATISTICS": statistics, "MAX_SCORES": max_scores, "FIRST_WEIGHTS": first_weights}
    tile_maxima = new(p.batch, p.heads, p.q_len, tiles, wanted=riders.top_keys > 0)
    start(
        decode_kernel,
        (splits, kv_heads, p.batch),
        **operands.pairs(cut),
        **values,
        **operands.sizes,
        **operands.scoring,
        **intervals(p).rows,
        **cut.options,
        **parts,
        TILE_MAXIMA=tile_maxima,
        splits=splits,
        per_split=per_split,
        first_keys=riders.first,
        tiles=tiles,
        ROWS=rows,
        BLOCK_K=cut.block_k,
        HAS_TILE_MAXIMA=riders.top_keys > 0,
        **asked,
    )
    shape = (p.batch, p.heads, p.q_len)
    out, lse = new(*shape, p.v.shape[-1], dtype=p.v.dtype), new(*shape)
    entropy, distance = (new(*shape, wanted=statistics) for _ in range(2))
    max_score, argmax = new(*shape, wanted=max_scores), new(*shape, wanted=max_scores, dtype=torch.int64)
    first_weight = new(*shape, wanted=first_weights)
    start(
        merge_kernel,
        (p.group * p.q_len, kv_heads, p.batch),
        **parts,
        SINK=lse if p.sink is None else p.sink.detach(),
        OUT=out,
        LSE=lse,
        ENTROPY=entropy,
        MEAN_DISTANCE=distance,
        MAX_SCORE=max_score,
        ARGMAX=argmax,
        FIRST_WEIGHT=first_weight,
        q_len=p.q_len,
        heads=p.heads,
        group=p.group,
        splits=splits,
        V_DIM=values["V_DIM"],
        V_WIDTH=values["V_WIDTH"],
        ROWS=rows,
        SPLITS_POW2=max(2, 1 << (most - 1).bit_length()),
        HAS_SINK=p.sink is not None,
        **asked,
    )
    return Streamed(
        out=out,
        lse=lse,
        entropy=entropy if riders.entropy else None,
        distance=distance if riders.distance else None,
        max_score=max_score if max_scores else None,
        argmax=argmax if max_scores else None,
        first=first_weight if first_weights else None,
        tile_maxima=tile_maxima if riders.top_keys else None,
    )


def top_keys_from_tiles(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    tile_maxima: Float[Tensor, "batch heads q tiles"],
    top: int,
) -> tuple[Float[Tensor, "batch heads q top"], Int64[Tensor, "batch heads q top"]]:
    """The heaviest keys of each row, which lie in the `top` tiles with the largest maxima."""
    operands, lse = Operands(problem), lse.contiguous()
    cut = operands.config("decode")
    value, tile = _largest(tile_maxima.flatten(0, 2), None, lse, top, last=False)
    score = torch.empty(*value.shape, cut.block_k, device=value.device)
    key = torch.empty(score.shape, dtype=torch.int32, device=value.device)
    start(
        rescore_kernel,
        value.shape[::-1],
        **operands.plain,
        **operands.sizes,
        **operands.scoring,
        **intervals(problem).rows,
        TOP=value,
        TILE=tile,
        SCORE=score,
        KEY=key,
        BLOCK_K=cut.block_k,
    )
    weight, found = _largest(score.flatten(1), key.flatten(1), lse, top, last=True)
    return weight.view(*lse.shape, top), found.view(*lse.shape, top)


def _largest(
    scores: Float[Tensor, "rows n"], keys: Int[Tensor, "rows n"] | None, lse: Tensor, top: int, *, last: bool
) -> tuple[Float[Tensor, "rows top"], Int[Tensor, "rows top"]]:
    """The largest scores of rows and their keys, or indices; in the `last` call weights instead of scores.

    The kernel reduces every piece of the scores to its best, then pieces of those, until one piece is left.
    Pieces have a fixed length, so that the kernel isn't compiled for each text length.
    """
    while True:
        rows, length = scores.shape
        pieces = -(-length // PIECE)
        done = pieces == 1
        best = scores.new_empty(rows, pieces * top)
        kind = torch.int64 if last and done else torch.int32
        best_at = torch.empty(best.shape, dtype=kind, device=scores.device)
        start(
            largest_kernel,
            (pieces, rows),
            scores,
            scores if keys is None else keys,
            lse,
            best,
            best_at,
            length,
            pieces,
            COUNT=top,
            PIECE=min(PIECE, 1 << (length - 1).bit_length()) if last else PIECE,
            FIRST=keys is None,
            LAST=last and done,
        )
        if done:
            return best, best_at
        scores, keys = best, best_at


def _splits(problem: Problem, block: int) -> tuple[int, int, int]:
    """The number of splits of a head's keys, the keys per split (whole blocks), and the number of splits for
    a long text."""
    programs = PER_PROCESSOR * _processors(problem.q.device)
    wanted = max(1, programs // (problem.batch * problem.k.shape[1]))
    blocks = -(-problem.k_len // block)
    each = -(-blocks // min(wanted, blocks))
    return -(-blocks // each), each * block, wanted


@remembered(128)
def _processors(device: torch.device) -> int:
    # The interpreter gets two splits, so that merging them is tested.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
