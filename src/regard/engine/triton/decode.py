"""Launching a decode step: split the keys, merge what the parts found."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.engine.problem import Problem
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


def applicable(problem: Problem) -> bool:
    """A few queries, and a mask that gives each of them one interval of keys."""
    few = problem.q_len <= MOST_QUERIES and problem.group * problem.q_len <= MOST_ROWS
    position = torch.arange(problem.q_len) + problem.offset
    return few and (problem.mask is None or problem.mask.spans(position) is not None)


def decode(problem: Problem, riders: Riders, top: int = 0) -> Decoded:
    """One step, with the row statistics that ride along and the `top` heaviest keys of each row."""
    p, operands = problem, Operands(problem)
    cut = operands.config("decode")
    table = operands.plan((MOST_QUERIES, cut.block_k))
    visits = operands.visits(table, table.by_query)
    kv_heads, statistics = p.k.shape[1], riders.entropy or riders.distance
    rows = max(16, 1 << (p.group * p.q_len - 1).bit_length())
    splits, per_split = _splits(p, cut.block_k)
    keep = top > 0 or riders.peak or riders.tops

    def new(*shape: int, wanted: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape if wanted else (1,), dtype=dtype, device=p.q.device)

    lead = (p.batch, kv_heads, rows)
    values = operands.values(cut)
    parts = {
        "ACC": new(*lead, splits, values["V_WIDTH"]),
        **{name: new(*lead, splits) for name in ("TOP", "TOTAL")},
        **{name: new(*lead, splits, wanted=statistics) for name in ("ENERGY", "DISTANCE")},
    }
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
        ROWS=rows,
        BLOCK_K=cut.block_k,
        STATISTICS=statistics,
        KEEP=keep,
    )
    shape = (p.batch, p.heads, p.q_len)
    out, lse = new(*shape, p.v.shape[-1], dtype=p.v.dtype), new(*shape)
    entropy, distance = (new(*shape, wanted=statistics) for _ in range(2))
    merge_kernel[(p.group * p.q_len, kv_heads, p.batch)](
        **parts,
        SINK=lse if p.sink is None else p.sink.detach(),
        OUT=out,
        LSE=lse,
        ENTROPY=entropy,
        MEAN=distance,
        q_len=p.q_len,
        heads=p.heads,
        group=p.group,
        splits=splits,
        V_DIM=values["V_DIM"],
        V_WIDTH=values["V_WIDTH"],
        ROWS=rows,
        MOST=max(2, 1 << (splits - 1).bit_length()),
        HAS_SINK=p.sink is not None,
        STATISTICS=statistics,
    )
    peak = peak_key = weight = key = None
    if riders.peak:
        value, found = _best(scores, 1)
        peak, peak_key = value[..., 0], found[..., 0]
    if top:
        weight, key = heaviest(scores, lse, top)
    streamed = Streamed(
        out=out,
        lse=lse,
        entropy=entropy if riders.entropy else None,
        distance=distance if riders.distance else None,
        peak=peak,
        peak_key=peak_key,
        # Every key is a class of its own.
        tops=scores if riders.tops else None,
    )
    return Decoded(streamed, weight, key)


def heaviest(
    scores: Float[Tensor, "batch heads q k"], lse: Float[Tensor, "batch heads q"], top: int
) -> tuple[Float[Tensor, "batch heads q top"], Int64[Tensor, "batch heads q top"]]:
    """The heaviest keys of rows whose scores, in units of log 2, are all there."""
    value, key = _best(scores, top)
    weight = (value - lse.masked_fill(lse == -torch.inf, torch.inf)[..., None]).exp()
    return weight, key.masked_fill(weight == 0, -1)


def _best(scores: Float[Tensor, "batch heads q k"], count: int) -> tuple[Tensor, Tensor]:
    """The largest scores of each row and their keys: of every piece first, then of the pieces."""
    k_len, total = scores.shape[3], scores.shape[:3].numel()
    pieces, room = -(-k_len // PIECE), 1 << (count - 1).bit_length()
    value = torch.full((total, pieces, room), -torch.inf, device=scores.device)
    key = torch.full((total, pieces, room), -1, dtype=torch.int32, device=scores.device)
    best_kernel[(pieces, total)](scores, value, key, k_len, pieces, COUNT=count, PIECE=PIECE, ROOM=room)
    # Pieces and their entries stand in the order of keys where scores are equal, and a stable sort keeps them
    # so.
    value, order = value.flatten(1).sort(dim=1, descending=True, stable=True)
    key = key.flatten(1).gather(1, order[:, :count]).long()
    shape = (*scores.shape[:3], count)
    return value[:, :count].reshape(shape) * math.log(2), key.reshape(shape)


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
