"""The pyramid: coarse overviews of a long map, computed in one pass over it and stored on disk.

Tiles of levels below `COARSE` are computed from exact cells on each request. Levels from `COARSE` on are
stored: per head, one file of mean weights and one of largest weights. They are float32, because float16
rounds numbers below 6e-8 to 0, and means over 1,024 cells of a long map are often smaller. Tiles are stored
one after another; a tile of zeros, such as half of the tiles under a causal mask, is a hole in the file and
takes no space.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats import ColumnMass, Decay, Pooled, PooledMaps
from regard.viewer.curves import CurveSums
from regard.viewer.heads import Head
from regard.viewer.pooling import TILE, Blocks

__all__ = ["COARSE", "Pyramid", "Stored"]

COARSE = 5
# The queries of one row of tiles of the finest stored level.
BAND = TILE << COARSE
# About this many cells are read between two progress reports, so that cancellation takes effect soon.
PIECE = 1 << 28
FEWEST = 1024
SLOT = TILE * TILE * 4
FORMAT = 1

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Level:
    """The tiles of one level in a file."""

    number: int
    rows: int
    cols: int
    first: int
    """The number of its first tile, counted from the beginning of the file."""

    @property
    def across(self) -> int:
        return -(-self.cols // TILE)

    @property
    def tiles(self) -> int:
        return -(-self.rows // TILE) * self.across

    def shape(self, row: int, col: int) -> tuple[int, int]:
        """The number of rows and columns of a tile, in blocks."""
        return min(TILE, self.rows - row * TILE), min(TILE, self.cols - col * TILE)

    def place(self, row: int, col: int) -> int:
        """The offset of a tile in its file, in bytes."""
        return (self.first + row * self.across + col) * SLOT


class Pyramid:
    """The stored overviews of one head, in a folder named after a hash of its data.

    They are complete if the `.json` file exists, which is written last; incomplete ones are made again.
    """

    HOWS = ("mean", "max")

    def __init__(self, folder: Path, name: str, queries: int, keys: int) -> None:
        self.folder, self.name, self.queries, self.keys = folder, name, queries, keys
        self.levels: dict[int, Level] = {}
        first = 0
        for number in range(COARSE, 64):
            level = Level(number, -(-queries // (1 << number)), -(-keys // (1 << number)), first)
            self.levels[number] = level
            first += level.tiles
            if level.rows == level.cols == 1:
                break

    @property
    def piece(self) -> int:
        """The number of queries to read at a time: whole blocks, at most one band."""
        wanted = 1 << (PIECE // max(1, self.keys)).bit_length() >> 1
        # The fixed cost of a piece grows with the keys, so read enough rows even if the window is narrow.
        return min(max(wanted, FEWEST), BAND)

    @property
    def steps(self) -> int:
        """The number of steps of making it."""
        return -(-self.queries // self.piece)

    @property
    def ready(self) -> bool:
        """Whether it can be read."""
        return self.about() is not None

    def about(self) -> dict[str, Any] | None:
        """The data stored beside the tiles, such as curves; None if there is no pyramid."""
        try:
            said = json.loads(self.about_file.read_bytes())
            whole = all(self._file(how).stat().st_size == said["bytes"] for how in self.HOWS)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return said if whole and said.get("format") == FORMAT else None

    def read(self, level: int, row: int, col: int, how: str) -> Float[Tensor, "rows cols"]:
        """One stored tile."""
        where = self.levels[level]
        rows, cols = where.shape(row, col)
        with open(self._file(how), "rb") as file:
            file.seek(where.place(row, col))
            data = bytearray(file.read(rows * cols * 4))
        return torch.frombuffer(data, dtype=torch.float32).view(rows, cols)

    def level(self, level: int, how: str) -> Float[Tensor, "rows cols"]:
        """One whole level; the finest of a map of 131,072 tokens takes 64 MiB."""
        where = self.levels[level]
        found = torch.empty(where.rows, where.cols)
        for row in range(-(-where.rows // TILE)):
            for col in range(where.across):
                rows, cols = where.shape(row, col)
                at = slice(row * TILE, row * TILE + rows), slice(col * TILE, col * TILE + cols)
                found[at] = self.read(level, row, col, how)
        return found

    def make(self, head: Head, progress: Progress | None = None) -> None:
        """Compute and store every level, in one pass over the map; `progress` may raise to stop."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = secrets.token_hex(4)
        drafts = {how: self.folder / f".{self.name}.{stem}.{how}.tmp" for how in self.HOWS}
        try:
            curves = self._write(head, drafts, progress)
            size = next(reversed(self.levels.values())).first * SLOT + SLOT
            about = {"format": FORMAT, "bytes": size, "curves": curves}
            for how, draft in drafts.items():
                os.truncate(draft, size)
                draft.replace(self._file(how))
            draft = self.folder / f".{self.name}.{stem}.json.tmp"
            draft.write_text(json.dumps(about))
            draft.replace(self.about_file)
        finally:
            for draft in self.folder.glob(f".{self.name}.{stem}.*"):
                draft.unlink(missing_ok=True)

    @property
    def about_file(self) -> Path:
        """The marker of completeness; its time is that of the last use."""
        return self._file("json")

    def _file(self, kind: str) -> Path:
        return self.folder / f"{self.name}.{kind}"

    def _write(self, head: Head, drafts: dict[str, Path], progress: Progress | None) -> dict[str, Any]:
        curves = CurveSums(self.queries, self.keys)
        files = {how: open(draft, "wb") for how, draft in drafts.items()}  # noqa: SIM115 - closed below
        try:
            rising = _Rising(self.levels, files)
            for step in range(self.steps):
                rows = range(step * self.piece, min((step + 1) * self.piece, self.queries))
                seen = head.band(rows).stats(Pooled(1 << COARSE, "both"), ColumnMass(), Decay())
                curves.add(rows, seen)
                rising.add(COARSE, _blocks(seen["pooled"], len(rows), self.keys))
                if progress is not None:
                    progress(step + 1, self.steps)
            rising.finish()
        finally:
            for file in files.values():
                file.close()
        return curves.finish()


class _Rising:
    """Collects the blocks of each level until a row of tiles is complete, writes it, and halves it for the
    next.

    So no level is in memory as a whole; the finest level of 1,000,000 tokens would take 11 GiB.
    """

    def __init__(self, levels: dict[int, Level], files: dict[str, Any]) -> None:
        self.levels, self.files = levels, files
        self._pending: dict[int, list[Blocks]] = {number: [] for number in levels}
        self._written = dict.fromkeys(levels, 0)

    def add(self, number: int, blocks: Blocks) -> None:
        """Add the next rows of blocks of a level, from top to bottom."""
        pending = self._pending[number]
        pending.append(blocks)
        if sum(len(each.cells) for each in pending) == TILE:
            self._write(number)

    def finish(self) -> None:
        """Write the last rows of tiles, which may have fewer rows of blocks."""
        for number, pending in self._pending.items():
            if pending:
                self._write(number)

    def _write(self, number: int) -> None:
        whole = Blocks(*(torch.cat(parts) for parts in zip(*self._pending[number], strict=True)))
        self._pending[number] = []
        _put(self.files, self.levels[number], self._written[number], whole)
        self._written[number] += 1
        if number + 1 in self.levels:
            self.add(number + 1, whole.halved())


@dataclass(frozen=True)
class Stored:
    """The location of the pyramids of one layer's heads."""

    folder: Path
    layer: str

    def head(self, number: int, queries: int, keys: int) -> Pyramid:
        return Pyramid(self.folder, f"{self.layer}-{number:03d}", queries, keys)


def _blocks(pooled: PooledMaps, rows: int, cols: int) -> Blocks:
    sides = []
    for length in (rows, cols):
        starts = torch.arange(0, length, 1 << COARSE)
        sides.append((length - starts).clamp(max=1 << COARSE).float())
    cells = sides[0][:, None] * sides[1]
    mean, most = pooled.mean[0, 0].float(), pooled.max[0, 0].float()
    return Blocks(mean * cells, most, cells)


def _put(files: dict[str, Any], level: Level, row: int, blocks: Blocks) -> None:
    """Write one row of tiles; those without any weight stay holes."""
    for col in range(level.across):
        part = slice(col * TILE, (col + 1) * TILE)
        for how in Pyramid.HOWS:
            tile = (blocks.mean if how == "mean" else blocks.max)[:, part]
            if bool(tile.any()):
                files[how].seek(level.place(row, col))
                files[how].write(tile.contiguous().numpy().tobytes())
