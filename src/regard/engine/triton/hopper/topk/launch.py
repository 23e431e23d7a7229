"""Top keys and block maxima from the tile maxima of a forward pass, band by band.

The forward writes the tile maxima of one band of queries. They are processed before the next band, so that
one buffer of bounded size serves all bands: thresholds, wanted tiles, shared tiles, candidates, selection,
exhaustive search.
"""

# A kernel calls its compile-time arguments constexpr, and is given plain numbers.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from regard.engine.riders import Riders, Streamed
from regard.engine.triton.forward.tile_maxima import TileMaxima
from regard.engine.triton.hopper.topk.candidates import hopper_candidates_kernel
from regard.engine.triton.hopper.topk.candidates_ptx import MAX_CANDIDATES
from regard.engine.triton.hopper.topk.exhaustive import exhaustive_kernel
from regard.engine.triton.hopper.topk.shared_tiles import (
    CHOSEN,
    choose_tiles_kernel,
    drop_ties_kernel,
    raise_thresholds_kernel,
)
from regard.engine.triton.hopper.topk.shares import shares_kernel
from regard.engine.triton.hopper.topk.threshold import hopper_threshold_kernel
from regard.engine.triton.hopper.topk.threshold_two_pass import (
    BITS,
    select_kernel,
    threshold_kernel,
    wanted_tiles_kernel,
)
from regard.engine.triton.launch.start import aligned, start
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.intervals import SIDE, intervals

__all__ = ["TopKeys"]

# Bytes for tile maxima.
BAND_BYTES = 1 << 29
# Up to this many tiles, each half of a tile gets a maximum of its own.
LONG = 8192
# The least number of query blocks per band: one per multiprocessor.
PROGRAMS = 128
# Classes of tiles or keys. The k-th largest class maximum is a lower bound of the k-th largest score.
CLASSES = 32
# Rows per program of the selection, one per thread.
ROWS = 32
# Blocks of queries per program of the exhaustive search. A program searches its flagged blocks one after the
# other, and mostly few are flagged.
SEARCH_BLOCKS = 1
# From this many rows of a block on that want a tile, the tile is shared: the whole block is multiplied with
# it to raise the thresholds.
SHARED = 48
# Tiles whose bits or counts a program reads at once.
CHUNK = 32
# Where rows want more tiles than this on average, there may be ties among tile maxima. Tiles whose bits are
# counted at once.
MANY, WIDE = 16, 256
# The arguments of kernels that read neither queries nor keys.
CHOOSING = ("LOW", "HIGH", "mask_b", "mask_h", "scale", "q_len", "k_len", "heads", "first_row", "band_rows")
CHOOSING += ("lines", "GRAIN", "SIDE", "CHUNK")
# The most shared tiles per block, by grain.
USED = {64: 3, 128: 2}
# Registers per thread of kernels that process whole blocks: four programs fit on a multiprocessor.
BLOCK_REGISTERS = 128
# Tiles per program of the wanted-tiles kernel.
LINES = 16
# Up to this many tiles, their maxima stay in registers while thresholds are found: (warps, registers per
# thread). With more tiles they are read twice.
ONE_PASS = {64: (4, 48), 128: (4, 64), 256: (4, 96), 512: (8, 128)}
# Programs that list candidates: enough to keep the device busy, but each must load its tile of keys. Their
# registers per thread, by grain.
CANDIDATE_PROGRAMS = 2048
# Programs whose shares one program computes.
SHARE_GROUP = 64
REGISTERS = {64: 128, 128: 168}


class TopKeys:
    """Turns the tile maxima of a forward pass with these block sizes into top keys."""

    def __init__(self, operands: Operands, riders: Riders, result: Streamed, blocks: tuple[int, int]) -> None:
        self.operands, self.problem, self.result = operands, operands.problem, result
        self.block_q, self.block_k = blocks
        self.asked = bool(riders.top_keys or riders.grain)
        self.top = riders.top_keys
        self.grain = riders.grain or self.block_k // (1 if self.problem.k_len >= LONG else 2)
        self.maps = self.problem.batch * self.problem.heads
        self.lines = -(-self.problem.k_len // self.block_k) * (self.block_k // self.grain)
        # The size class of the one-pass kernel, in tiles; 0 if there are too many tiles for its registers.
        fitting = [lines for lines in ONE_PASS if self.lines <= lines]
        self.one_pass = min(fitting) if self.top and fitting else 0
        # Blocks of queries per band: all of them, unless their tile maxima would take too much memory.
        self.blocks = self.at_once = -(-self.problem.q_len // self.block_q)
        self.per_block = self.maps * self.lines * self.block_q
        if self.asked:
            few = max(BAND_BYTES // (4 * self.per_block), -(-PROGRAMS // self.maps))
            self.at_once = min(few, self.blocks)
        if self.one_pass and result.block_maxima is not None:
            result.block_maxima.zero_()
        if self.top:
            shape = (self.problem.batch, self.problem.heads)
            new = result.lse.new_empty
            self.threshold = new(*shape, self.problem.q_len)
            # Flags of blocks to search exhaustively; the lengths of a band's candidate lists, which
            # `select_kernel` resets to 0; and the number of rows of each band that want each tile.
            searched, counted = self.maps * -(-self.problem.q_len // SIDE), self.maps * self.lines
            bands = -(-self.blocks // self.at_once)
            sizes = [aligned(searched), self.maps * self.at_once * self.block_q, *[aligned(counted)] * bands]
            zeros = torch.zeros(sum(sizes), dtype=torch.int32, device=self.threshold.device)
            exhaustive, self.length, *counts = zeros.split_with_sizes(sizes)
            self.exhaustive = exhaustive[:searched].view(*shape, -1)
            self.counts = [count[:counted] for count in counts]

    def bands(self) -> Iterator[tuple[range, TileMaxima | None]]:
        """The bands of query blocks, each with a buffer for its tile maxima."""
        if not self.asked:
            yield range(self.blocks), None
            return
        # All bands share one buffer.
        room = self.result.lse.new_empty(self.per_block * self.at_once)
        for first in range(0, self.blocks, self.at_once):
            band = range(first, min(first + self.at_once, self.blocks))
            shape = (self.maps, self.lines, len(band) * self.block_q)
            scores = room[: self.per_block * len(band)].view(shape)
            yield band, TileMaxima(scores, self.grain, band.start * self.block_q)

    def process_band(self, maxima: TileMaxima, band: range) -> None:
        """Find the top keys and block maxima of a band from its tile maxima."""
        wanted = self._threshold_one_pass(maxima) if self.one_pass else self._threshold_two_pass(maxima, band)
        if wanted is not None:
            count = self.counts[band.start // self.at_once]
            self._raise_thresholds(maxima, wanted, count)
            self._select(maxima, self._list_candidates(maxima, wanted, count))
            self._search(maxima, wanted)

    def _threshold_one_pass(self, maxima: TileMaxima) -> Int32[Tensor, "maps lines words"]:
        """Compute thresholds, block maxima and wanted tiles in one kernel that reads the tile maxima once."""
        result, (blocks, sizes), wanted = self.result, self._visits(maxima), self._new_tile_bits(maxima)
        warps, registers = ONE_PASS[self.one_pass]
        start(
            hopper_threshold_kernel,
            (maxima.scores.shape[2] // BITS.value, self.maps),
            maxima.scores,
            result.lse,
            blocks,
            self.threshold,
            wanted,
            self.exhaustive if result.block_maxima is None else result.block_maxima.view(torch.int32),
            self.operands.scale,
            *sizes,
            *self._block_counts,
            HAS_BLOCK_MAXIMA=result.block_maxima is not None,
            LINES=self.one_pass,
            TOP=self.top,
            CLASSES=CLASSES,
            **self._cut,
            num_warps=warps,
            maxnreg=registers,
        )
        return wanted

    def _threshold_two_pass(
        self, maxima: TileMaxima, band: range
    ) -> Int32[Tensor, "maps lines words"] | None:
        """The same in two kernels. Without top keys only block maxima are computed."""
        result, (blocks, sizes), unused = self.result, self._visits(maxima), self.result.lse
        start(
            threshold_kernel,
            (len(band), self.maps),
            maxima.scores,
            result.lse,
            blocks,
            self.threshold if self.top else unused,
            unused if result.block_maxima is None else result.block_maxima,
            self.operands.scale,
            *sizes,
            *self._block_counts,
            HAS_BLOCK_MAXIMA=result.block_maxima is not None,
            TOP=self.top,
            CLASSES=CLASSES,
            **self._cut,
            num_warps=1,
        )
        if not self.top:
            return None
        wanted = self._new_tile_bits(maxima)
        start(
            wanted_tiles_kernel,
            (len(band), self.maps, -(-self.lines // LINES)),
            maxima.scores,
            self.threshold,
            blocks,
            wanted,
            self.operands.scale,
            *sizes,
            LINES=LINES,
            **self._cut,
            num_warps=4,
        )
        return wanted

    def _raise_thresholds(
        self, maxima: TileMaxima, wanted: Int32[Tensor, "maps lines words"], count: Int32[Tensor, " lines"]
    ) -> None:
        """Clear the bits of tiles that only tie with others, raise the thresholds of rows that share tiles,
        so that fewer tiles are wanted, and count the rows that want each."""
        grid = (maxima.scores.shape[2] // SIDE, self.maps)
        tiles = count.new_empty(self.maps, grid[0], CHOSEN.value)
        shared = {
            "TILE_MAXIMA": maxima.scores,
            "THRESHOLD": self.threshold,
            "WANTED": wanted,
            "COUNT": count,
            "TILES": tiles,
        }
        arguments = self._search_arguments(maxima)
        both = {name: arguments[name] for name in CHOOSING}
        start(
            drop_ties_kernel,
            grid,
            **{name: shared[name] for name in ("TILE_MAXIMA", "THRESHOLD", "WANTED")},
            **both,
            LSE=self.result.lse,
            TOP=self.top,
            MANY=MANY,
            WIDE=WIDE,
        )
        start(choose_tiles_kernel, grid, **shared, **both, SHARED=SHARED, num_warps=1)
        start(
            raise_thresholds_kernel,
            grid,
            **shared,
            **arguments,
            LSE=self.result.lse,
            TOP=self.top,
            CLASSES=CLASSES,
            USED=USED[maxima.grain],
            num_stages=1,
            maxnreg=BLOCK_REGISTERS,
        )

    @property
    def _score_arguments(self) -> dict[str, Any]:
        """Arguments of kernels that score rows again."""
        p = self.problem
        return {
            **self.operands.plain,
            **intervals(p).rows,
            "q_len": p.q_len,
            "k_len": p.k_len,
            "heads": p.heads,
            "group": p.group,
            "DIM": p.q.shape[-1],
        }

    def _search_arguments(self, maxima: TileMaxima) -> dict[str, Any]:
        """Arguments of kernels that process whole blocks of SIDE queries of a band."""
        return {
            **self._score_arguments,
            "scale": self.operands.scale,
            "first_row": maxima.first,
            "band_rows": maxima.scores.shape[2],
            "lines": self.lines,
            "GRAIN": maxima.grain,
            "SIDE": SIDE,
            "CHUNK": CHUNK,
        }

    def _visits(self, maxima: TileMaxima) -> tuple[Tensor, tuple[int, ...]]:
        """Arguments that all kernels of a band share: the tiles that each block of queries visits, and
        sizes."""
        p, table = self.problem, intervals(self.problem)
        blocks, _ = table.blocks(self.block_q, self.block_k)
        plane_stride = blocks.shape[1] if table.planes > 1 else 0
        rows = maxima.scores.shape[2]
        return blocks, (p.q_len, p.heads, plane_stride, maxima.first, rows, self.lines)

    def _new_tile_bits(self, maxima: TileMaxima) -> Int32[Tensor, "maps lines words"]:
        """A buffer for one bit per row and tile."""
        shape = (self.maps, self.lines, maxima.scores.shape[2] // BITS.value)
        return torch.empty(shape, dtype=torch.int32, device=maxima.scores.device)

    @property
    def _cut(self) -> dict[str, int]:
        return {"GRAIN": self.grain, "BLOCK_Q": self.block_q, "BLOCK_K": self.block_k}

    @property
    def _block_counts(self) -> tuple[int, int]:
        """The number of block maxima by rows and columns; 0 if not requested."""
        highest = self.result.block_maxima
        return (0, 0) if highest is None else (highest.shape[2], highest.shape[3])

    def _list_candidates(
        self, maxima: TileMaxima, wanted: Int32[Tensor, "maps lines words"], count: Int32[Tensor, " lines"]
    ) -> Int64[Tensor, "maps rows places"]:
        """List the keys of wanted tiles that reach the thresholds of their rows."""
        maps, lines, rows = maxima.scores.shape
        lists = count.new_empty(maps, rows, MAX_CANDIDATES.value, dtype=torch.int64)
        programs = lines + -(-CANDIDATE_PROGRAMS // maps)
        shares = count.new_empty(maps, programs, 3)
        start(
            shares_kernel,
            (-(-programs // SHARE_GROUP), maps),
            count,
            shares,
            lines,
            programs,
            rows // BITS.value,
            CHUNK=CHUNK,
            GROUP=SHARE_GROUP,
        )
        start(
            hopper_candidates_kernel,
            (maps * programs,),
            **self._score_arguments,
            SHARES=shares,
            WANTED=wanted,
            # The tile maxima are no longer needed: their memory is reused.
            NUMBERS=maxima.scores.view(torch.int32),
            THRESHOLD=self.threshold,
            LIST_LENGTH=self.length[: maps * rows].view(maps, rows),
            CANDIDATE_LISTS=lists,
            first_row=maxima.first,
            rows=rows,
            lines=lines,
            programs=programs,
            GRAIN=maxima.grain,
            MASKED=self.problem.mask is not None,
            num_warps=4,
            maxnreg=REGISTERS[maxima.grain],
        )
        return lists

    def _select(self, maxima: TileMaxima, lists: Int64[Tensor, "maps rows places"]) -> None:
        """Select the heaviest candidates. Blocks with a row that has more candidates than its list holds are
        flagged."""
        p, result, (_, _, rows), first_row = self.problem, self.result, maxima.scores.shape, maxima.first
        band_rows = min(rows, p.q_len - first_row)
        start(
            select_kernel,
            (-(-band_rows // ROWS), self.maps),
            result.lse,
            self.length,
            lists,
            result.top_weight,
            result.top_key,
            result.lse if result.max_score is None else result.max_score,
            result.top_key if result.argmax is None else result.argmax,
            self.exhaustive,
            self.operands.scale,
            band_rows,
            rows,
            p.q_len,
            first_row,
            self.exhaustive.shape[-1],
            TOP=self.top,
            MAX_CANDIDATES=MAX_CANDIDATES.value,
            ROWS=ROWS,
            SIDE=SIDE,
            MAX_SCORES=result.max_score is not None,
            ARGMAXES=result.argmax is not None,
            num_warps=1,
        )

    def _search(self, maxima: TileMaxima, wanted: Int32[Tensor, "maps lines words"]) -> None:
        """Search the flagged blocks key by key."""
        result = self.result
        start(
            exhaustive_kernel,
            (-(-maxima.scores.shape[2] // (SIDE * SEARCH_BLOCKS)), self.maps),
            LSE=result.lse,
            EXHAUSTIVE=self.exhaustive,
            THRESHOLD=self.threshold,
            WANTED=wanted,
            WEIGHT=result.top_weight,
            KEY=result.top_key,
            MAX_SCORE=result.lse if result.max_score is None else result.max_score,
            ARGMAX=result.top_key if result.argmax is None else result.argmax,
            MAX_SCORES=result.max_score is not None,
            ARGMAXES=result.argmax is not None,
            exhaustive_blocks=self.exhaustive.shape[-1],
            TOP=self.top,
            WIDE=max(2, 1 << (self.top - 1).bit_length()),
            COUNT=SEARCH_BLOCKS,
            maxnreg=BLOCK_REGISTERS,
            **self._search_arguments(maxima),
        )
