"""The sums of a pass: the memory that kernels write to, and the combination of partial results.

Row results are written in place, because a row belongs to one piece at a time. Sums over columns, diagonals,
blocks and bins are computed per piece, and added up in the order of the pieces. If a single fold requests a
sum, the kernels write to that fold's own tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.engine.native.grid import Grid
from regard.engine.native.units import Unit
from regard.stats import Frame
from regard.stats.folds import (
    BinFold,
    BlockFold,
    ColumnFold,
    ColumnMaxFold,
    DiagonalFold,
    DistanceFold,
    EntropyFold,
    Fold,
    MaxScoreFold,
    MixFold,
    TopKeysFold,
)

__all__ = ["KINDS", "Share", "Sum", "starts"]

# Padding around buffers: vectors at the edge of a piece extend past it, and add zeros there.
MARGIN = 64
FLOAT = 4


@dataclass(frozen=True)
class Share:
    """The partial sums of one piece, and the part of the total that they are added to."""

    own: Tensor
    home: Tensor
    maximum: bool = False

    def bring_home(self) -> None:
        if self.maximum:
            torch.maximum(self.home, self.own, out=self.home)
        else:
            self.home.add_(self.own)


class Sum:
    """One kind of sum, for all folds that request it."""

    def __init__(self, folds: Sequence[Any], frame: Frame) -> None:
        self.folds, self.frame = folds, frame
        self.make()

    def make(self) -> None:
        """Allocate memory for the whole map."""

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        """Point a job at the memory for its results; returns the partial sums to add when it is done."""
        raise NotImplementedError

    def deliver(self) -> None:
        """Add the totals to the tensors of the folds."""
        raise NotImplementedError

    def room(self, wanted: Sequence[Tensor], *shape: int, fill: float = 0) -> Tensor:
        """Memory for one result per batch row and head: the fold's own tensor, if there is only one fold."""
        whole = (self.frame.batch, self.frame.heads, *shape)
        if len(wanted) == 1 and wanted[0].shape == whole and wanted[0].is_contiguous():
            return wanted[0]
        return torch.full(whole, fill, dtype=wanted[0].dtype, device="cpu")


class _PerRow(Sum):
    field: ClassVar[str]

    def make(self) -> None:
        self.sums = self.room([fold.into for fold in self.folds], self.frame.q)
        self.start = starts(self.sums)

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        setattr(job, self.field, self.start(unit.batch, unit.head))
        return []

    def deliver(self) -> None:
        for fold in self.folds:
            if fold.into is not self.sums:
                fold.into.add_(self.sums)


class Entropies(_PerRow):
    """For EntropyFold."""

    field = "entropy"


class Distances(_PerRow):
    """For DistanceFold."""

    field = "distance"

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        job.offset = self.frame.offset
        return super().aim(job, unit)


class MaxScores(Sum):
    """For MaxScoreFold."""

    def make(self) -> None:
        self.value = self.room([fold.value for fold in self.folds], self.frame.q, fill=-torch.inf)
        self.key = self.room([fold.key for fold in self.folds], self.frame.q, fill=-1)
        self.starts = starts(self.value), starts(self.key)

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        job.peak, job.peak_key = (start(unit.batch, unit.head) for start in self.starts)
        return []

    def deliver(self) -> None:
        for fold in self.folds:
            if fold.value is not self.value:
                fold.value.copy_(self.value)
                fold.key.copy_(self.key)


class TopKeys(Sum):
    """For TopKeysFold."""

    def make(self) -> None:
        self.k = self.folds[0].about
        self.weight = self.room([fold.weight for fold in self.folds], self.frame.q, self.k)
        self.key = self.room([fold.key for fold in self.folds], self.frame.q, self.k, fill=-1)
        self.starts = starts(self.weight), starts(self.key)

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        job.top, job.top_key = (start(unit.batch, unit.head) for start in self.starts)
        job.top_k = self.k
        return []

    def deliver(self) -> None:
        for fold in self.folds:
            if fold.weight is not self.weight:
                fold.weight.copy_(self.weight)
                fold.key.copy_(self.key)


class Mixes(Sum):
    """For MixFold: the columns of all folds side by side, each with the range of keys outside which it is
    0."""

    def make(self) -> None:
        # Keys after the last one that a fold reads are left out.
        stop = max(self.frame.k if fold.stop is None else fold.stop for fold in self.folds)
        # An expanded dimension is one column for all.
        parts = [_unexpanded(fold.columns[:, :, :stop]) for fold in self.folds]
        batch, heads = (max(part.shape[dim] for part in parts) for dim in (0, 1))
        self.widths = [part.shape[-1] for part in parts]
        self.columns = torch.zeros(
            batch, heads, sum(self.widths), stop + MARGIN, dtype=torch.float32, device="cpu"
        )
        start = 0
        for part, width in zip(parts, self.widths, strict=True):
            self.columns[:, :, start : start + width, :stop] = part.mT
            start += width
        self.support = self._support(stop)
        self.sums = self.room([fold.into for fold in self.folds], self.frame.q, sum(self.widths))
        columns = self.columns.expand(self.frame.batch, self.frame.heads, -1, -1)
        self.starts = starts(columns), starts(self.sums)

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        job.columns, job.sums = (start(unit.batch, unit.head) for start in self.starts)
        job.support, job.n_columns = self.support.data_ptr(), self.columns.shape[2]
        job.columns_stride = self.columns.stride(2)
        return []

    def _support(self, stop: int) -> Int64[Tensor, "columns 2"]:
        """The range of keys in which each column is not 0."""
        if all(fold.stop is not None for fold in self.folds):
            return torch.tensor([0, stop], device="cpu").repeat(sum(self.widths), 1)
        used = (self.columns != 0).flatten(0, 1).any(0)  # (columns, k)
        first = used.int().argmax(-1)
        last = used.shape[-1] - used.flip(-1).int().argmax(-1)
        return torch.stack([first, last * used.any(-1)], -1).contiguous()

    def deliver(self) -> None:
        for fold, sums in zip(self.folds, self.sums.split(self.widths, -1), strict=True):
            if fold.into is not self.sums:
                fold.into.add_(sums)


class Columns(Sum):
    """For ColumnFold."""

    def make(self) -> None:
        self.sums = self.room([fold.into for fold in self.folds], self.frame.k)
        rows = self.folds[0].rows
        self.rows = None if rows is None else rows.contiguous()
        self.start = None if self.rows is None else starts(self.rows)

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        keys = unit.keys
        own, start = unit.zeros(len(keys) + 2 * MARGIN)
        job.column_sums = start + (MARGIN - keys.start) * FLOAT
        if self.start is not None:
            job.row_weights = self.start(unit.batch, unit.head)
        home = unit.part_of(self.sums)[..., keys.start : keys.stop]
        return [Share(own[..., MARGIN : MARGIN + len(keys)], home)]

    def deliver(self) -> None:
        for fold in self.folds:
            if fold.into is not self.sums:
                fold.into.add_(self.sums[..., fold.first : fold.first + fold.into.shape[-1]])


class ColumnMaxima(Sum):
    """For ColumnMaxFold."""

    def make(self) -> None:
        self.maxima = self.room([fold.into for fold in self.folds], self.frame.k)

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        keys = unit.keys
        own, start = unit.zeros(len(keys) + 2 * MARGIN)
        job.column_tops = start + (MARGIN - keys.start) * FLOAT
        home = unit.part_of(self.maxima)[..., keys.start : keys.stop]
        return [Share(own[..., MARGIN : MARGIN + len(keys)], home, maximum=True)]

    def deliver(self) -> None:
        for fold in self.folds:
            if fold.into is not self.maxima:
                Share(self.maxima, fold.into, maximum=True).bring_home()


class Diagonals(Sum):
    """For DiagonalFold."""

    def make(self) -> None:
        length = max(self.frame.q, 1) + self.frame.k - 1
        self.sums = self.room([fold.into for fold in self.folds], length)

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        keys, rows = unit.keys, unit.rows
        lowest, count = keys.start - rows.stop + 1, len(keys) + len(rows) - 1
        own, address = unit.zeros(count + 2 * MARGIN)
        job.diagonals = address + (MARGIN - lowest) * FLOAT
        start = lowest + self.frame.q - 1
        home = unit.part_of(self.sums)[..., start : start + count]
        return [Share(own[..., MARGIN : MARGIN + count], home)]

    def deliver(self) -> None:
        for fold in self.folds:
            if fold.into is not self.sums:
                fold.into.add_(self.sums)


class Blocks(Sum):
    """For BlockFold."""

    def make(self) -> None:
        self.size = self.folds[0].size
        shape = (-(-self.frame.q // self.size), -(-self.frame.k // self.size))
        sums = [fold.sums for fold in self.folds if fold.sums is not None]
        wanted_maxima = [fold.maxima for fold in self.folds if fold.maxima is not None]
        self.sums = self.room(sums, *shape) if sums else None
        self.maxima = self.room(wanted_maxima, *shape) if wanted_maxima else None
        named = (("block_sums", self.sums), ("block_tops", self.maxima))
        self.wholes = [(field, whole, starts(whole)) for field, whole in named if whole is not None]

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        size, rows, keys = self.size, unit.rows, unit.keys
        # If no row of blocks is split between pieces, each sum has one writer, so pieces need no own buffers.
        uncut = rows.start % size == 0 and (rows.stop % size == 0 or rows.stop == self.frame.q)
        down = slice(rows.start // size, (rows.stop - 1) // size + 1)
        across = slice(keys.start // size, (keys.stop - 1) // size + 1)
        width = across.stop - across.start
        job.size, job.block_stride = size, -(-self.frame.k // size) if uncut else width
        shares = []
        for field, whole, start in self.wholes:
            if uncut:
                setattr(job, field, start(unit.batch, unit.head) + down.start * job.block_stride * FLOAT)
                continue
            own, address = unit.zeros(down.stop - down.start, width)
            setattr(job, field, address - across.start * FLOAT)
            home = unit.part_of(whole)[..., down, across]
            shares.append(Share(own, home, maximum=whole is self.maxima))
        return shares

    def deliver(self) -> None:
        for fold in self.folds:
            for wanted, whole in ((fold.sums, self.sums), (fold.maxima, self.maxima)):
                if wanted is not None and whole is not None and wanted is not whole:
                    Share(whole, wanted, maximum=whole is self.maxima).bring_home()


class Bins(Sum):
    """For BinFold."""

    def make(self) -> None:
        self.of, borders = self.folds[0].about
        self.borders = torch.tensor(borders, dtype=torch.float32, device="cpu")
        shape = (self.frame.batch, self.frame.heads, len(borders))
        self.reached = torch.zeros(shape, dtype=torch.int64, device="cpu")

    def aim(self, job: Any, unit: Unit | Grid) -> list[Share]:
        own, address = unit.zeros(len(self.borders), dtype=torch.int64)
        job.bins, job.borders = address, self.borders.data_ptr()
        job.n_borders, job.bins_of_scores = len(self.borders), self.of == "score"
        return [Share(own, unit.part_of(self.reached))]

    def deliver(self) -> None:
        for fold in self.folds:
            # The first bin starts with all pairs; each border that a pair reaches moves it to the next bin.
            fold.into[..., :-1] -= self.reached
            fold.into[..., 1:] += self.reached


KINDS: dict[type[Fold], type[Sum]] = {
    EntropyFold: Entropies,
    DistanceFold: Distances,
    MaxScoreFold: MaxScores,
    TopKeysFold: TopKeys,
    MixFold: Mixes,
    ColumnFold: Columns,
    ColumnMaxFold: ColumnMaxima,
    DiagonalFold: Diagonals,
    BlockFold: Blocks,
    BinFold: Bins,
}


def starts(x: Tensor) -> Callable[[Any, Any], Any]:
    """The address of each batch row and head; reads the strides of x only once."""
    first, size = x.data_ptr(), x.element_size()
    by_batch, by_head = x.stride(0) * size, x.stride(1) * size
    return lambda batch, head: first + batch * by_batch + head * by_head


def _unexpanded(x: Tensor) -> Tensor:
    """Take an expanded batch or head dimension back to size 1."""
    for dim in (0, 1):
        x = x.narrow(dim, 0, 1) if x.stride(dim) == 0 and x.shape[dim] else x
    return x
