"""The plan of a mask: small integer tables that tell a kernel which tiles to visit.

A kernel works on one block of queries (or of keys) and walks the blocks of the other side that it can see.
These come as *runs* of adjacent blocks, of two kinds. In a **full** run every pair may attend and nothing is
masked. In an **edge** run pairs are masked: by one interval of keys per query if the mask has such `spans`,
otherwise by stored bits. Blocks in no run are never touched. The end of the keys is an edge like any other,
so kernels know nothing of masks or ragged lengths, and no mask or length causes a compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int, Int8, Int32
from torch import Tensor
from torch.nn.functional import pad

from regard.engine.triton.schedule.spans import Spans, bounds, spans_of
from regard.masks import Coverage, Mask
from regard.memo import Keeper, remembered

__all__ = ["Plan", "Runs", "plan"]

WORD = 32
# Cells of a mask evaluated at once, and tiles whose coverage is computed at once.
CELLS = 1 << 24


@dataclass(frozen=True)
class Runs:
    """What each block of one side visits on the other: block b owns runs at[b] … at[b + 1].

    A full run is (start, stop), an edge run (start, stop, place of its first tile in `tiles`), counted in
    blocks. `tiles` maps a place to a stored tile of bits. `order` lists the blocks, longest first.
    """

    full_at: Int32[Tensor, " blocks_and_one"]
    full: Int32[Tensor, "full_runs 2"]
    edge_at: Int32[Tensor, " blocks_and_one"]
    edge: Int32[Tensor, "edge_runs 3"]
    tiles: Int32[Tensor, " places"]
    order: Int32[Tensor, "planes blocks"]


@dataclass(frozen=True)
class Plan(Keeper):
    """Everything a kernel needs to know about a mask. A plane is a batch row with a schedule of its own."""

    q_len: int
    k_len: int
    block_q: int
    block_k: int
    device: torch.device
    spans: Spans | None
    evaluated: Int8[Tensor, "planes q_blocks k_blocks"] | None = None
    bits: Int32[Tensor, "heads tiles block_q words"] | None = None

    @property
    def planes(self) -> int:
        known = self.evaluated if self.spans is None else self.spans[0]
        return 1 if known is None else known.shape[0]

    @property
    def q_blocks(self) -> int:
        return -(-self.q_len // self.block_q)

    @property
    def k_blocks(self) -> int:
        return -(-self.k_len // self.block_k)

    @cached_property
    def cover(self) -> Int8[Tensor, "planes q_blocks k_blocks"]:
        """The coverage of each tile. It grows with the square of the length, so it is computed only if
        needed."""
        if self.evaluated is not None or self.spans is None:
            return self.evaluated  # pyright: ignore[reportReturnType] - what has no spans was evaluated
        return _cover_of_spans(*self.spans, self.k_len, (self.block_q, self.block_k))

    @cached_property
    def by_query(self) -> Runs:
        """The runs for kernels whose programs each own a block of queries."""
        if self.spans is not None:
            return _runs_of_spans(*self.spans, self.k_len, (self.block_q, self.block_k))
        return _runs(self.cover, self._numbers, self.device)

    def by_key(self, band: range | None = None) -> Runs:
        """The runs for kernels whose programs each own a block of keys; `band` restricts the query blocks."""
        band = band or range(self.q_blocks)
        return self.once(("key", band), lambda: self._runs_by(_by_key, band))

    def by_diagonal(self, band: range | None = None) -> Runs:
        """The runs for kernels that walk along diagonals. Row r holds the tiles with key block - query block
        = r - last, where query blocks count from the start of the band and `last` is the band's last one.
        Runs count key blocks.
        """
        band = band or range(self.q_blocks)
        return self.once(("diagonal", band), lambda: self._runs_by(_by_diagonal, band))

    def _runs_by(self, transform: Callable[[Tensor], Tensor], band: range) -> Runs:
        part = slice(band.start, band.stop)
        numbers = None if self._numbers is None else transform(self._numbers[:, part])
        return _runs(transform(self.cover[:, part]), numbers, self.device)

    @cached_property
    def visited(self) -> int:
        """The number of visited tiles, over all planes."""
        return int((self.cover > Coverage.EMPTY).sum())

    @cached_property
    def numbers(self) -> Int32[Tensor, "planes q_blocks k_blocks"] | None:
        """The index of each tile's stored bits, -1 for tiles without."""
        if self._numbers is None:
            return None
        return self._numbers.masked_fill(self.cover != Coverage.PARTIAL, -1).to(torch.int32).contiguous()

    @cached_property
    def _numbers(self) -> Int[Tensor, "planes q_blocks k_blocks"] | None:
        """The index of the stored bits of each partial tile."""
        if self.bits is None:
            return None
        return ((self.cover == Coverage.PARTIAL).flatten().cumsum(0) - 1).view_as(self.cover)


@remembered(64)
def plan(
    mask: Mask | None, q_len: int, k_len: int, offset: int, blocks: tuple[int, int], device: torch.device
) -> Plan:
    """The plan of a mask for tiles of `blocks` (queries, keys); `offset` is the position of query 0.

    >>> from regard.masks import Causal
    >>> table = plan(Causal(), 256, 256, 0, (64, 64), torch.device("cpu")).by_query
    >>> table.full.tolist(), table.edge[:, :2].tolist()
    ([[0, 1], [0, 2], [0, 3]], [[0, 1], [1, 2], [2, 3], [3, 4]])
    """
    spans = spans_of(mask, q_len, k_len, offset, device)
    if spans is not None or mask is None:
        return Plan(q_len, k_len, *blocks, device, spans)
    cover = torch.stack([_cover_of_mask(row, q_len, k_len, offset, blocks) for row in _rows(mask)])
    cover, bits = _evaluated(mask, cover, q_len, k_len, offset, blocks, device)
    return Plan(q_len, k_len, *blocks, device, None, cover, bits)


def _rows(mask: Mask) -> Iterator[Mask]:
    """The mask of each plane."""
    return iter([mask]) if mask.batch is None else (mask.select(row) for row in range(mask.batch))


def _runs_of_spans(
    low: Int[Tensor, "rows heads q"], high: Int[Tensor, "rows heads q"], k_len: int, blocks: tuple[int, int]
) -> Runs:
    """One full run per block of queries and an edge run on either side of it, computed from the intervals.

    Tiles between the intervals of a block's queries are visited as edges, and turn out to be empty.
    """
    block_q, block_k = blocks
    first, last, full_first, full_last = (x.long() for x in bounds(low, high, k_len, block_q))
    first, last = first.clamp(max=k_len) // block_k, -(-last // block_k)
    last = torch.maximum(first, last)
    full_first = torch.minimum(torch.maximum(-(-full_first // block_k), first), last)
    full_last = torch.minimum(torch.maximum(full_last // block_k, full_first), last)
    nothing = full_first >= full_last
    full_first, full_last = full_first.where(~nothing, last), full_last.where(~nothing, last)
    full_at, full = _nonempty_runs(torch.stack([torch.stack([full_first, full_last], -1)], 2))
    edges = torch.stack([torch.stack([first, full_first], -1), torch.stack([full_last, last], -1)], 2)
    edge_at, edge = _nonempty_runs(edges)
    order = (last - first).argsort(dim=1, descending=True, stable=True)
    tables = (full_at, full, edge_at, pad(edge, (0, 1)), edge_at[:0], order)
    return Runs(*(table.to(low.device, torch.int32).contiguous() for table in tables))


def _nonempty_runs(runs: Int[Tensor, "planes blocks most 2"]) -> tuple[Tensor, Tensor]:
    """The nonempty runs of all blocks in one list, and the index at which each block's runs begin."""
    some = runs[..., 1] > runs[..., 0]
    return pad(some.sum(2).flatten().cumsum(0), (1, 0)), runs[some]


def _cover_of_spans(
    low: Int[Tensor, "rows heads q"], high: Int[Tensor, "rows heads q"], k_len: int, blocks: tuple[int, int]
) -> Int8[Tensor, "planes q_blocks k_blocks"]:
    block_q, block_k = blocks
    first, last, full_first, full_last = bounds(low, high, k_len, block_q)
    start = torch.arange(0, k_len, block_k, dtype=torch.int32, device=low.device)
    seen = (start + block_k > first[..., None]) & (start < last[..., None])
    full = (start >= full_first[..., None]) & (start + block_k <= full_last[..., None])
    return seen.to(torch.int8) + (seen & full).to(torch.int8)


def _cover_of_mask(
    mask: Mask, q_len: int, k_len: int, offset: int, blocks: tuple[int, int]
) -> Int8[Tensor, "q_blocks k_blocks"]:
    q_start, k_start = torch.arange(0, q_len, blocks[0]), torch.arange(0, k_len, blocks[1])
    k_stop = (k_start + blocks[1]).clamp(max=k_len)
    bands = []
    for q in q_start.split(max(1, CELLS // max(1, len(k_start)))):
        q_stop = (q + blocks[0]).clamp(max=q_len)
        cover = mask.cover((q + offset)[:, None], (q_stop + offset)[:, None], k_start[None], k_stop[None])
        bands.append(cover.expand(len(q), len(k_start)).to(torch.int8))
    found = torch.cat(bands) if bands else torch.zeros(0, len(k_start), dtype=torch.int8)
    if k_len % blocks[1]:
        # The keys end inside the last block, so the rest of it must be masked.
        found[:, -1].clamp_(max=Coverage.PARTIAL)
    return found


def _evaluated(
    mask: Mask,
    cover: Int8[Tensor, "planes q_blocks k_blocks"],
    q_len: int,
    k_len: int,
    offset: int,
    blocks: tuple[int, int],
    device: torch.device,
) -> tuple[Int8[Tensor, "planes q_blocks k_blocks"], Int32[Tensor, "heads tiles block_q words"]]:
    """Evaluate every partial tile: the coverage, now exact, and the bits of tiles that are still partial."""
    cover = cover.clone()
    kept: list[Tensor] = []
    at_once = max(1, CELLS // (blocks[0] * blocks[1] * (mask.heads or 1)))
    for plane, row in enumerate(_rows(mask)):
        row = row.to(device)
        places = (cover[plane] == Coverage.PARTIAL).nonzero()
        for some in places.split(at_once) if len(places) else ():
            allowed = _cells(row, some.to(device), q_len, k_len, offset, blocks)
            every, none = allowed.flatten(2).all(2).all(0).cpu(), ~allowed.flatten(2).any(2).any(0).cpu()
            verdict = torch.where(every, Coverage.FULL, torch.where(none, Coverage.EMPTY, Coverage.PARTIAL))
            cover[plane, some[:, 0], some[:, 1]] = verdict.to(torch.int8)
            kept.append(_packed(allowed[:, (~every & ~none).to(device)]))
    words = torch.cat(kept, 1) if kept else torch.zeros(1, 0, blocks[0], blocks[1] // WORD, dtype=torch.int32)
    return cover.to(device), words.to(device)


def _cells(
    mask: Mask, places: Int[Tensor, "tiles 2"], q_len: int, k_len: int, offset: int, blocks: tuple[int, int]
) -> Bool[Tensor, "heads tiles block_q block_k"]:
    """Which cells of these tiles may attend; rows past the last query repeat the last query."""
    rows, cols = (torch.arange(block, device=places.device) for block in blocks)
    q = (places[:, 0, None] * blocks[0] + rows).clamp(max=q_len - 1)[:, :, None] + offset
    k = (places[:, 1, None] * blocks[1] + cols)[:, None, :]
    inside = k < k_len
    allowed = mask.allows(q, k.clamp(max=k_len - 1)) & inside
    shape = (len(places), *blocks)
    return allowed.expand(*allowed.shape[:-3], *shape).reshape(-1, *shape)


def _packed(
    allowed: Bool[Tensor, "heads tiles block_q block_k"],
) -> Int32[Tensor, "heads tiles block_q words"]:
    """One bit per cell; the lowest bit of a word is its first key."""
    places = torch.arange(WORD, device=allowed.device)
    words = (allowed.unflatten(-1, (-1, WORD)).long() << places).sum(-1)
    # The highest bit is the sign of a 32-bit word.
    return (words - ((words >> 31) << 32)).to(torch.int32)


def _runs(cover: Tensor, numbers: Tensor | None, device: torch.device) -> Runs:
    planes, blocks, _ = cover.shape
    partial = cover == Coverage.PARTIAL
    full_at, full = _adjacent_runs(cover == Coverage.FULL)
    edge_at, edge = _adjacent_runs(partial)
    first, tiles = torch.zeros_like(edge[:, :1]), edge_at[:0]
    if numbers is not None:
        # Partial tiles are numbered in this order, so the tiles of a run are adjacent.
        place = (partial.flatten().cumsum(0) - 1).view(planes * blocks, -1)
        owner = torch.repeat_interleave(torch.arange(planes * blocks, device=cover.device), edge_at.diff())
        first, tiles = place[owner, edge[:, 0]][:, None], numbers[partial]
    order = (cover > Coverage.EMPTY).sum(2).argsort(dim=1, descending=True, stable=True)
    tables = (full_at, full, edge_at, torch.cat([edge, first], 1), tiles, order)
    return Runs(*(table.to(device, torch.int32).contiguous() for table in tables))


def _by_key(x: Tensor) -> Tensor:
    return x.mT


def _by_diagonal(x: Tensor) -> Tensor:
    """(planes, q_blocks, k_blocks) → (planes, diagonals, k_blocks), 0 outside the map."""
    planes, rows, cols = x.shape
    found = x.new_zeros(planes, rows + cols - 1, cols)
    for row in range(rows):
        found.diagonal(row - rows + 1, 1, 2).copy_(x[:, row])
    return found


def _adjacent_runs(hit: Bool[Tensor, "planes blocks others"]) -> tuple[Tensor, Tensor]:
    """The runs of adjacent hits of all rows in one list, and the index at which each row's runs begin."""
    change = pad(hit.flatten(0, 1).to(torch.int8), (1, 1)).diff(dim=1)  # (rows, others + 1)
    starts, stops = (change == 1).nonzero(), (change == -1).nonzero()
    count = torch.bincount(starts[:, 0], minlength=change.shape[0])
    return pad(count.cumsum(0), (1, 0)), torch.stack([starts[:, 1], stops[:, 1]], 1)
