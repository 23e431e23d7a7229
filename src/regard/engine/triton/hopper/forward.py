"""Launching the fused forward for Hopper."""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.riders import Riders, Streamed
from regard.engine.triton.configs import TOP_CLASSES
from regard.engine.triton.hopper.boxes import boxes
from regard.engine.triton.hopper.forward_kernel import hopper_forward_kernel
from regard.engine.triton.hopper.gathering import tops_kernel
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule import intervals
from regard.engine.triton.starting import start

__all__ = ["launch"]

BLOCK_Q, BLOCK_K, STAGES, WARPS = 128, 128, 2, 4
# Bytes for the largest scores of tiles; what follows from them is found before the next band of queries.
BAND_BYTES = 1 << 29
# Shorter texts have few tiles: halves of them have largest scores of their own.
LONG = 8192
# Blocks of queries enough for every multiprocessor to have one.
PROGRAMS = 128


@dataclass(frozen=True)
class _TileTops:
    """Room for the largest score of each row's `grain` keys, of a band of blocks of queries."""

    scores: Float[Tensor, "maps lines rows"]
    grain: int


def launch(
    operands: Operands,
    riders: Riders,
    result: Streamed,
    peak_tile: Tensor,
    dirty: Tensor,
    classes: int,
) -> None:
    """Fill `result`, the tiles of its peaks if there are `classes` of keys to search, and which blocks of
    queries came out as something else than numbers."""
    p = operands.problem
    table, unused = intervals(p), result.lse
    blocks, order = table.blocks(BLOCK_Q, BLOCK_K)
    for band, tops in _bands(p, riders, result.lse):
        some = order
        if len(band) < order.shape[1]:
            some = table.once(("order", band), partial(_part, order, band))
        _, lines, rows = (0, 0, 0) if tops is None else tops.scores.shape
        start(
            hopper_forward_kernel,
            (len(band), p.heads, p.batch),
            boxes(operands.q, BLOCK_Q),
            boxes(operands.k, BLOCK_K),
            boxes(operands.v, BLOCK_K),
            result.out,
            result.lse,
            *(_or(x, unused) for x in (result.entropy, result.distance, result.peak)),
            peak_tile,
            unused if tops is None else tops.scores,
            dirty,
            unused if p.sink is None else p.sink.detach(),
            table.low,
            table.high,
            blocks,
            some,
            *table.strides,
            operands.scale,
            p.q_len,
            p.offset,
            p.heads,
            p.group,
            blocks.shape[1],
            blocks.shape[1] if table.planes > 1 else 0,
            lines * rows,
            rows,
            band.start * BLOCK_Q,
            BLOCK_K=BLOCK_K,
            DIM=p.q.shape[-1],
            STAGES=STAGES,
            CLASSES=classes,
            HAS_SINK=p.sink is not None,
            ENTROPIES=riders.entropy,
            DISTANCES=riders.distance,
            PEAKS=riders.peak,
            GRAIN=0 if tops is None else tops.grain,
            num_warps=WARPS,
        )
        if tops is not None:
            _tell(operands, result, tops, band)


def _bands(problem: Problem, riders: Riders, like: Tensor) -> Iterator[tuple[range, _TileTops | None]]:
    """Blocks of queries to do together: all, but for the room that the largest scores of tiles take."""
    p = problem
    blocks, maps = -(-p.q_len // BLOCK_Q), p.batch * p.heads
    if not (riders.tops or riders.grain):
        yield range(blocks), None
        return
    grain = riders.grain or (BLOCK_K if p.k_len >= LONG else BLOCK_K // 2)
    lines = -(-p.k_len // BLOCK_K) * (BLOCK_K // grain)
    at_once = max(BAND_BYTES // (4 * maps * lines * BLOCK_Q), -(-PROGRAMS // maps))
    # Every band has the same room.
    room = like.new_empty(maps * lines * BLOCK_Q * min(at_once, blocks))
    for first in range(0, blocks, at_once):
        band = range(first, min(first + at_once, blocks))
        rows = len(band) * BLOCK_Q
        yield band, _TileTops(room[: maps * lines * rows].view(maps, lines, rows), grain)


def _tell(operands: Operands, result: Streamed, tops: _TileTops, band: range) -> None:
    """What the largest scores of tiles say about rows and about blocks of the map."""
    p, table, unused = operands.problem, intervals(operands.problem), result.lse
    blocks, _ = table.blocks(BLOCK_Q, BLOCK_K)
    maps, lines, rows = tops.scores.shape
    start(
        tops_kernel,
        (len(band), maps),
        tops.scores,
        result.lse,
        blocks,
        _or(result.tops, unused),
        _or(result.highest, unused),
        operands.scale,
        p.q_len,
        p.heads,
        blocks.shape[1] if table.planes > 1 else 0,
        band.start * BLOCK_Q,
        rows,
        lines,
        *((0, 0) if result.highest is None else result.highest.shape[2:]),
        TOPS=result.tops is not None,
        HIGHEST=result.highest is not None,
        CLASSES=TOP_CLASSES,
        GRAIN=tops.grain,
        BLOCK_Q=BLOCK_Q,
        BLOCK_K=BLOCK_K,
        num_warps=1,
    )


def _part(order: Int32[Tensor, "planes blocks"], band: range) -> Int32[Tensor, "planes blocks"]:
    """An order of blocks in which a band's come first."""
    outside = (order < band.start) | (order >= band.stop)
    return order.gather(1, outside.to(torch.int8).argsort(dim=1, stable=True)).contiguous()


def _or(x: Tensor | None, unused: Tensor) -> Any:
    return unused if x is None else x
