"""Launches the kernels of a decode step: attention over splits of the keys, then a merge."""

# A kernel calls its compile-time arguments tl.constexpr, and is given plain numbers.
# pyright: reportArgumentType=false
from __future__ import annotations

import math
from typing import Any

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

__all__ = ["applicable", "decode", "most_splits", "row_intervals", "split", "top_keys_from_tiles"]

MOST_ROWS = 64
# Programs per multiprocessor: enough loads in flight to keep memory busy.
PER_PROCESSOR = 2
PIECE = 2048
INT32_MAX = (1 << 31) - 1
# The results that each split writes; those that are not requested have any tensor in their place.
PARTIAL = ("ACC", "TOP", "TOTAL", "ENERGY", "DISTANCE", "SPLIT_ARGMAX", "SPLIT_FIRST_WEIGHT")


@asked_once
def applicable(problem: Problem) -> bool:
    """Whether a problem has few queries and a mask that gives each of them one interval of keys."""
    if problem.q_len > MAX_DECODE_QUERIES or problem.group * problem.q_len > MOST_ROWS:
        return False
    return problem.mask is None or has_intervals(problem)


def row_intervals(problem: Problem) -> dict[str, Any]:
    """Arguments of kernels that read the interval of each row; `k_len` ends it too."""
    if problem.mask is None:
        low, high = _everything(problem.q_len, problem.q.device)
        return {"LOW": low, "HIGH": high, "mask_b": 0, "mask_h": 0}
    return intervals(problem).rows


@remembered(32)
def _everything(q_len: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The intervals of rows that see all keys, however many there are."""
    shape = (1, 1, q_len)
    return (
        torch.zeros(shape, dtype=torch.int32, device=device),
        torch.full(shape, INT32_MAX, dtype=torch.int32, device=device),
    )


def decode(problem: Problem, riders: Riders) -> Streamed:
    """One decode step with its row statistics; for top keys it returns the maximum of each tile of keys."""
    return _Step(problem, riders).run()


class _Step:
    """The launches of one decode step: partial results per split of the keys, then their merge."""

    def __init__(self, problem: Problem, riders: Riders) -> None:
        p, self.riders, self.operands = problem, riders, Operands(problem)
        self.problem, self.cut = problem, self.operands.config("decode")
        self.kv_heads, self.statistics = p.k.shape[1], riders.entropy or riders.distance
        self.rows = max(16, 1 << (p.group * p.q_len - 1).bit_length())
        self.most = most_splits(p)
        self.splits, self.per_split = split(p.k_len, self.cut.block_k, self.most)
        self.values = self.operands.values(self.cut)
        self.requested = {
            "STATISTICS": self.statistics,
            "MAX_SCORES": riders.max_score,
            "FIRST_WEIGHTS": riders.first > 0,
        }

    def run(self) -> Streamed:
        partial, tile_maxima = self._partial_results(), self._tile_maxima()
        self._attend(partial, tile_maxima)
        return self._merge(partial, tile_maxima)

    def _new(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.problem.q.device)

    def _tile_maxima(self) -> Tensor | None:
        p, tiles = self.problem, -(-self.problem.k_len // self.cut.block_k)
        return self._new(p.batch, p.heads, p.q_len, tiles) if self.riders.top_keys else None

    def _partial_results(self) -> dict[str, Tensor]:
        """Buffers for the partial softmax of each split and its statistics.

        There is room for the splits of a long text, so that steps of all lengths allocate the same.
        """
        lead = (self.problem.batch, self.kv_heads, self.rows, self.most)
        parts = {"ACC": self._new(*lead, self.values["V_WIDTH"])}
        parts |= {name: self._new(*lead) for name in ("TOP", "TOTAL")}
        if self.statistics:
            parts |= {name: self._new(*lead) for name in ("ENERGY", "DISTANCE")}
        if self.riders.max_score:
            parts["SPLIT_ARGMAX"] = self._new(*lead, dtype=torch.int32)
        if self.riders.first:
            parts["SPLIT_FIRST_WEIGHT"] = self._new(*lead)
        return dict.fromkeys(PARTIAL, parts["TOP"]) | parts

    def _rows(self, count: int) -> list[Tensor]:
        """Some new numbers per row, in one allocation if each begins at a multiple of 16 bytes, as kernels
        are compiled for, and if no gradient flows from them."""
        p = self.problem
        shape = (p.batch, p.heads, p.q_len)
        if math.prod(shape) % 4 or any(x.requires_grad for x in (p.q, p.k, p.v)):
            return [self._new(*shape) for _ in range(count)]
        return list(self._new(count, *shape).unbind())

    def _attend(self, partial: dict[str, Tensor], tile_maxima: Tensor | None) -> None:
        p, operands = self.problem, self.operands
        start(
            decode_kernel,
            (self.splits, self.kv_heads, p.batch),
            **operands.pairs(self.cut),
            **self.values,
            **operands.sizes,
            **operands.scoring,
            **row_intervals(p),
            **self.cut.options,
            **partial,
            TILE_MAXIMA=partial["TOP"] if tile_maxima is None else tile_maxima,
            splits=self.splits,
            per_split=self.per_split,
            first_keys=self.riders.first,
            tiles=-(-p.k_len // self.cut.block_k),
            ROWS=self.rows,
            BLOCK_K=self.cut.block_k,
            HAS_TILE_MAXIMA=self.riders.top_keys > 0,
            **self.requested,
        )

    def _merge(self, partial: dict[str, Tensor], tile_maxima: Tensor | None) -> Streamed:
        p, riders, new, statistics = self.problem, self.riders, self._new, self.statistics
        shape = (p.batch, p.heads, p.q_len)
        max_scores, first_weights = riders.max_score, riders.first > 0
        wanted = {
            "LSE": True,
            "ENTROPY": statistics,
            "MEAN_DISTANCE": statistics,
            "MAX_SCORE": max_scores,
            "FIRST_WEIGHT": first_weights,
        }
        rows = iter(self._rows(sum(wanted.values())))
        lse = next(rows)
        results = {
            "OUT": new(*shape, p.v.shape[-1], dtype=p.v.dtype),
            "LSE": lse,
            **{name: next(rows) if wanted[name] else lse for name in list(wanted)[1:]},
            "ARGMAX": new(*shape, dtype=torch.int64) if max_scores else lse,
        }
        start(
            merge_kernel,
            (p.group * p.q_len, self.kv_heads, p.batch),
            **partial,
            **results,
            SINK=results["LSE"] if p.sink is None else p.sink.detach(),
            q_len=p.q_len,
            heads=p.heads,
            group=p.group,
            splits=self.splits,
            V_DIM=self.values["V_DIM"],
            V_WIDTH=self.values["V_WIDTH"],
            ROWS=self.rows,
            SPLITS_POW2=max(2, 1 << (self.most - 1).bit_length()),
            HAS_SINK=p.sink is not None,
            **self.requested,
        )
        return Streamed(
            out=results["OUT"],
            lse=results["LSE"],
            entropy=results["ENTROPY"] if riders.entropy else None,
            distance=results["MEAN_DISTANCE"] if riders.distance else None,
            max_score=results["MAX_SCORE"] if max_scores else None,
            argmax=results["ARGMAX"] if max_scores else None,
            first=results["FIRST_WEIGHT"] if first_weights else None,
            tile_maxima=tile_maxima,
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
        **row_intervals(problem),
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


def most_splits(problem: Problem) -> int:
    """The number of splits of a head's keys in a long text."""
    programs = PER_PROCESSOR * _processors(problem.q.device)
    return max(1, programs // (problem.batch * problem.k.shape[1]))


def split(k_len: int, block: int, most: int) -> tuple[int, int]:
    """The number of splits of some keys, at most `most`, and the keys per split."""
    blocks = -(-k_len // block)
    each = -(-blocks // min(most, blocks))
    return -(-blocks // each), each * block


@remembered(128)
def _processors(device: torch.device) -> int:
    # The interpreter gets two splits, so that merging them is tested.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
