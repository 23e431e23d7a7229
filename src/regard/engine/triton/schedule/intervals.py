"""The schedule of masks whose rows each see one interval of keys: a few numbers per block of queries.

A block of queries visits one run of tiles, and the full tiles within it are one run too, so no list of tiles
is stored. `plan` handles arbitrary masks, and stores more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int, Int32
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.problem import Problem
from regard.engine.triton.schedule.spans import bounds, spans_of
from regard.errors import BackendError
from regard.masks import Mask
from regard.memo import Keeper, remembered

__all__ = ["SIDE", "Schedule", "Strips", "has_intervals", "intervals", "schedule"]

# The second pass walks down diagonals in steps of SIDE queries and keys.
SIDE = 64
PAIRS = 1 << 24


@dataclass(frozen=True)
class Strips:
    """Diagonal strips of bands of query blocks, for the second pass.

    A strip is a row of three numbers: its first block of queries, its number of blocks, and key block - query
    block. Only the strips in `with_diagonals` sum along diagonals. For each band, `pairs` maps (number of a
    pair of block diagonals - `first`) to the place of its sums, or to -1 if there are none.
    """

    with_diagonals: Int32[Tensor, "planes strips 3"]
    without_diagonals: Int32[Tensor, "planes others 3"]
    pairs: tuple[Int32[Tensor, "planes pairs"], ...]
    first: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of strips whose diagonals are summed."""
        return self.with_diagonals.shape[1]


@dataclass(frozen=True)
class Schedule(Keeper):
    """The intervals of a mask, per plane (a batch row with a mask of its own), and derived tables."""

    low: Int32[Tensor, "planes heads q"]
    high: Int32[Tensor, "planes heads q"]
    k_len: int

    @property
    def planes(self) -> int:
        return self.low.shape[0]

    @property
    def q_len(self) -> int:
        return self.low.shape[2]

    @property
    def strides(self) -> tuple[int, int]:
        """The strides of batch rows and heads in `low` and `high`; 0 where they are shared."""
        low = self.low
        return low.stride(0) if low.shape[0] > 1 else 0, low.stride(1) if low.shape[1] > 1 else 0

    @property
    def rows(self) -> dict[str, Any]:
        """Arguments of kernels that read the interval of each row."""
        mask_b, mask_h = self.strides
        return {"LOW": self.low, "HIGH": self.high, "mask_b": mask_b, "mask_h": mask_h}

    @cached_property
    def _on_host(self) -> tuple[Int[Tensor, "planes heads q"], Int[Tensor, "planes heads q"]]:
        return self.low.cpu(), self.high.cpu()

    @property
    def seen_by_row(self) -> float:
        """The number of visible keys per row, on average."""
        return self.once("seen by row", self._seen_by_row)

    def _seen_by_row(self) -> float:
        low, high = self._on_host
        return float((high - low).clamp(min=0).double().mean())

    def visited(self, block: int) -> tuple[Int[Tensor, "planes blocks"], Int[Tensor, "planes blocks"]]:
        """The start and stop of the keys that any query of a block sees; 0 and 0 for a dead block."""
        first, stop, *_ = bounds(*self._on_host, self.k_len, block)
        return torch.minimum(first, stop), stop

    def full(self, block: int) -> Int[Tensor, "planes blocks 2"]:
        """The start and stop of the keys that every query of a block sees."""
        return torch.stack(bounds(*self._on_host, self.k_len, block)[2:], 2)

    def blocks(self, block_q: int, block_k: int) -> tuple[Int32[Tensor, "planes blocks 4"], Tensor]:
        """For each block of queries: start and stop of its tiles, start and stop of the full ones; and the
        order of blocks, longest first."""
        return self.once(("blocks", block_q, block_k), lambda: self._blocks(block_q, block_k))

    def _blocks(self, block_q: int, block_k: int) -> tuple[Tensor, Tensor]:
        first, stop = self.visited(block_q)
        full = self.full(block_q)
        first, stop = first // block_k, -(-stop // block_k)
        # A block that sees nothing still visits one tile, which is masked completely.
        stop = torch.maximum(stop, first + 1)
        table = torch.stack([first, stop, -(-full[..., 0] // block_k), full[..., 1] // block_k], 2)
        order = (stop - first).argsort(dim=1, descending=True, stable=True)
        return self._on_device(table), self._on_device(order)

    def key_blocks(self, block_q: int, block_k: int) -> tuple[Int32[Tensor, "planes blocks 4"], Tensor]:
        """For each block of keys: start and stop of the tiles of queries to visit; start and stop of the full
        ones among them; and the order of blocks, longest first.

        A visited tile may see nothing. Before the first full tile an interval may end within the block of
        keys, after the last one an interval may begin within it.
        """
        return self.once(("key blocks", block_q, block_k), lambda: self._key_blocks(block_q, block_k))

    def _key_blocks(self, block_q: int, block_k: int) -> tuple[Tensor, Tensor]:
        visited = self.visited(block_q)
        # A dead row is masked by its `low` alone, which is past the last key.
        low, high = self._on_host
        seen_by_all = bounds(low, high.where(high > 0, self.k_len), self.k_len, block_q)[2:]
        begins = torch.arange(0, max(1, self.k_len), block_k)
        # Process keys in parts: for long texts, all pairs of blocks don't fit into memory at once.
        some = begins.split(max(1, PAIRS // max(1, visited[0].shape[1])))
        ends = [(begin + block_k).clamp(max=self.k_len) for begin in some]
        found = [_of_keys(*pair, visited, seen_by_all) for pair in zip(some, ends, strict=True)]
        table = torch.cat(found, 1)
        order = (table[..., 1] - table[..., 0]).argsort(dim=1, descending=True, stable=True)
        return self._on_device(table), self._on_device(order)

    def whole(self, block: int) -> tuple[Int32[Tensor, "planes heads q"], Int32[Tensor, "planes heads q"]]:
        """`low` and `high`, padded to whole blocks of queries."""
        fill = (0, -self.q_len % block)
        return self.once(("whole", block), lambda: (pad(self.low, fill), pad(self.high, fill)))

    @property
    def edges(self) -> Int32[Tensor, "planes blocks_and_one 2"]:
        """`full` for blocks of SIDE queries, with one more block at the end that is never full."""
        return self.once("edges", lambda: self._on_device(pad(self.full(SIDE), (0, 0, 0, 1))))

    @property
    def seen(self) -> Int32[Tensor, "planes blocks 2"]:
        """For each block of SIDE queries, the start and stop of the blocks of SIDE keys that it sees."""
        return self.once("seen", lambda: self._on_device(torch.stack(self._seen(), 2)))

    def _seen(self) -> tuple[Tensor, Tensor]:
        first, stop = self.visited(SIDE)
        return first // SIDE, -(-stop // SIDE)

    def strips(self, bands: tuple[range, ...], wide: int, *, past: bool = False) -> Strips:
        """The strips, `wide` pairs of blocks wide, that the query blocks of some bands see; longest first.

        With `past`, strips all of whose keys come after their queries are not in `with_diagonals`.
        """
        return self.once(("strips", bands, wide, past), lambda: self._strips(bands, wide, past))

    def _strips(self, bands: tuple[range, ...], wide: int, past: bool) -> Strips:
        tables, first = zip(*(self._strips_of(band, wide) for band in bands), strict=True)
        table = torch.cat(tables, 1)
        length, offset = table[..., 1], table[0, :, 2]
        # The first diagonal of a strip is that of its first key and its last query.
        asked = (offset * SIDE - (SIDE - 1) <= self.k_len - self.q_len) | (not past)
        order, rest = (_longest_first(length, some.nonzero().squeeze(1)) for some in (asked, ~asked))
        turn = torch.arange(order.shape[1]).expand_as(order)
        place = torch.full_like(length, -1).scatter_(1, order, turn)
        pairs = [
            (wide * some[..., None] + torch.arange(wide)).where(some[..., None] >= 0, -1).flatten(1)
            for some in place.split([each.shape[1] for each in tables], 1)
        ]
        with_diagonals, without_diagonals = (
            table.gather(1, some[..., None].expand(-1, -1, 3)) for some in (order, rest)
        )
        return Strips(
            self._on_device(with_diagonals),
            self._on_device(without_diagonals),
            tuple(map(self._on_device, pairs)),
            first,
        )

    def _strips_of(self, band: range, wide: int) -> tuple[Int[Tensor, "planes strips 3"], int]:
        """The strips of one band, in order, and the number of the first pair of diagonals.

        Strips are aligned so that the last one ends with the last pair that any query sees: under a causal
        mask it is the longest.
        """
        first, stop = (x[:, band.start : band.stop] for x in self.visited(SIDE))
        block = torch.arange(band.start, band.stop)
        seen = stop > first
        low, high = ((x - block) // 2 for x in (first // SIDE, (stop - 1) // SIDE))  # in pairs of blocks
        behind = int(high[seen].max()) + 1 if seen.any() else wide
        turn = behind % wide
        low, high = ((x - turn) // wide for x in (low, high))
        base = int(low[seen].min()) if seen.any() else 0
        count = behind // wide - base
        strip = torch.arange(count) + base
        met = (strip >= low[..., None]) & (strip <= high[..., None]) & seen[..., None]
        begin = met.to(torch.int8).argmax(1)
        end = (len(block) - met.flip(1).to(torch.int8).argmax(1)) * met.any(1)
        length = (end - begin).clamp(min=0)
        offset = (2 * (strip * wide + turn)).expand_as(begin)
        return torch.stack([begin + band.start, length, offset], 2), base * wide + turn

    def _on_device(self, x: Tensor) -> Int32[Tensor, "..."]:
        return x.to(self.low.device, torch.int32).contiguous()


def _longest_first(length: Int[Tensor, "planes strips"], some: Int[Tensor, " some"]) -> Tensor:
    """The strips in `some`, longest first, without those that are empty in all planes."""
    length = length[:, some]
    kept = int((length > 0).sum(1).amax()) if len(some) else 0
    return some[length.argsort(dim=1, descending=True, stable=True)[:, :kept]]


def _of_keys(
    begin: Int[Tensor, "blocks"],
    end: Int[Tensor, "blocks"],
    visited: tuple[Tensor, Tensor],
    seen_by_all: tuple[Tensor, ...],
) -> Int[Tensor, "planes blocks 4"]:
    """`key_blocks` of some blocks of keys, given the keys that tiles of queries visit and those that all of
    their queries see."""
    begin, end = begin[:, None], end[:, None]
    low, high = (x[:, None] for x in visited)  # (planes, 1, tiles)
    first, stop = _hull((low < end) & (high > begin))  # (planes, blocks), from (planes, blocks, tiles)
    # A block that no query sees still visits one tile, which is masked completely.
    stop = torch.maximum(stop, first + 1)
    tile = torch.arange(low.shape[2])
    inside = (tile >= first[..., None]) & (tile < stop[..., None])
    low, high = (x[:, None] for x in seen_by_all)
    ends = _hull(inside & (high < end))[1]
    begins = inside & (low > begin)
    begins = _hull(begins)[0].where(begins.any(2), len(tile))
    return torch.stack([first, stop, ends, begins], 2)


def _hull(met: Bool[Tensor, "planes blocks tiles"]) -> tuple[Tensor, Tensor]:
    """The start and stop of the True places along the last axis; 0 and 0 if there are none."""
    first, back = met.to(torch.int8).argmax(-1), met.flip(-1).to(torch.int8).argmax(-1)
    return first, (met.shape[-1] - back) * met.any(-1)


def has_intervals(problem: Problem) -> bool:
    """Whether a problem's mask gives every query one interval of keys."""
    return _schedule_of(problem) is not None


def intervals(problem: Problem) -> Schedule:
    """The schedule of a problem whose mask must be intervals."""
    found = _schedule_of(problem)
    if found is None:
        raise BackendError(f"these kernels want one interval of keys per query, not {problem.mask!r}.")
    return found


def _schedule_of(problem: Problem) -> Schedule | None:
    return schedule(problem.mask, problem.q_len, problem.k_len, problem.offset, problem.q.device)


@remembered(64)
def schedule(mask: Mask | None, q_len: int, k_len: int, offset: int, device: torch.device) -> Schedule | None:
    """The schedule of a mask, or None if its rows see more than one interval.

    >>> from regard.masks import Causal
    >>> table, order = schedule(Causal(), 256, 256, 0, torch.device("cpu")).blocks(128, 64)
    >>> table[0].tolist(), order[0].tolist()
    ([[0, 2, 0, 0], [0, 4, 0, 2]], [1, 0])
    """
    spans = spans_of(mask, q_len, k_len, offset, device)
    return None if spans is None else Schedule(*spans, k_len=k_len)
