"""The schedule of a mask: blocks of queries, each with the runs of keys that it can see.

A run is either *full* (every pair is allowed, no mask is needed) or *partial* (the mask is applied). Keys
that no query of the block may see are in no run, and are never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from regard.masks import Coverage, Mask
from regard.memo import is_value, remembered

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Row", "chunks", "schedule", "small"]

KEY_TILE = 128
ROUND = 64
# Rows of the coverage grid to evaluate at once, which bounds the memory at any length.
GRID_CELLS = 1 << 20
LONGEST_KEPT = 1 << 17


@dataclass(frozen=True)
class Row:
    """One block of queries and the keys that it visits. All ranges are indices, not positions."""

    queries: range
    full: tuple[range, ...]
    partial: tuple[range, ...]

    @property
    def keys(self) -> int:
        return sum(map(len, self.full)) + sum(map(len, self.partial))


def schedule(mask: Mask | None, q_len: int, k_len: int, block: int, offset: int) -> Iterator[Row]:
    """Blocks of `block` queries in order, each with its runs of visible keys.

    `offset` is the position of query 0.
    """
    if mask is None:
        everything = (range(k_len),) if k_len else ()
        return (Row(queries, everything, ()) for queries in chunks(range(q_len), block))
    if small(mask, q_len) and is_value(mask):
        return iter(_known(mask, q_len, k_len, block, offset))
    return _rows(mask, q_len, k_len, block, offset)


def chunks(run: range, size: int) -> Iterator[range]:
    """Cut a range into pieces of at most `size`."""
    for start in range(run.start, run.stop, size):
        yield range(start, min(start + size, run.stop))


def small(mask: Mask, q_len: int, *_: object) -> bool:
    """Whether to cache results derived from a mask: it must be small, and not belong to one batch only.

    The layers of a model share a mask, so the same result is needed once per layer.
    """
    return mask.batch is None and q_len <= LONGEST_KEPT


@remembered(32)
def _known(mask: Mask, q_len: int, k_len: int, block: int, offset: int) -> tuple[Row, ...]:
    return tuple(_rows(mask, q_len, k_len, block, offset))


def _rows(mask: Mask, q_len: int, k_len: int, block: int, offset: int) -> Iterator[Row]:
    if k_len == 0 or q_len == 0:
        return (Row(queries, (), ()) for queries in chunks(range(q_len), block))
    return _by_spans(mask, q_len, k_len, block, offset) or _by_cover(mask, q_len, k_len, block, offset)


def _by_spans(mask: Mask, q_len: int, k_len: int, block: int, offset: int) -> Iterator[Row] | None:
    """The exact schedule of a mask under which each query sees one interval of keys, in O(q)."""
    spans = mask.spans(torch.arange(q_len, device="cpu") + offset)
    if spans is None:
        return None
    low, high = (edge.clamp(0, k_len) for edge in torch.broadcast_tensors(*spans))
    pad = -q_len % block
    # Dead rows must not widen the visited run, and they rule out a full one.
    empty = low >= high
    padded = [
        torch.nn.functional.pad(x, (0, pad), value=fill).view(-1, -(-q_len // block), block)
        for x, fill in (
            (low.masked_fill(empty, k_len), k_len),
            (high.masked_fill(empty, 0), 0),
            (low.masked_fill(empty, k_len), 0),
            (high.masked_fill(empty, 0), k_len),
        )
    ]
    # Batch rows that share a schedule visit what any of them sees, and only what all see is full.
    first, last = padded[0].amin((0, 2)), padded[1].amax((0, 2))
    full_first, full_last = padded[2].amax((0, 2)), padded[3].amin((0, 2))
    edges = torch.stack(
        [_down(first), _up(last).clamp(max=k_len), _up(full_first), _down(full_last)], 1
    ).tolist()
    return (_span_row(q, *edge) for q, edge in zip(chunks(range(q_len), block), edges, strict=True))


def _down(edge: torch.Tensor) -> torch.Tensor:
    """Align runs to round numbers if possible: odd widths cost more than a few masked keys."""
    return edge // ROUND * ROUND


def _up(edge: torch.Tensor) -> torch.Tensor:
    return -(-edge // ROUND) * ROUND


def _span_row(queries: range, first: int, last: int, full_first: int, full_last: int) -> Row:
    if first >= last:
        return Row(queries, (), ())
    if full_first >= full_last or not (first <= full_first and full_last <= last):
        return Row(queries, (), (range(first, last),))
    edges = (range(first, full_first), range(full_last, last))
    return Row(queries, (range(full_first, full_last),), tuple(run for run in edges if run))


def _by_cover(mask: Mask, q_len: int, k_len: int, block: int, offset: int) -> Iterator[Row]:
    """Classify a grid of tiles, a few rows of blocks at a time, and join adjacent tiles into runs."""
    k_start = torch.arange(0, k_len, KEY_TILE, device="cpu")
    k_stop = (k_start + KEY_TILE).clamp(max=k_len)
    at_once = max(1, GRID_CELLS // len(k_start))
    for band in chunks(range(0, -(-q_len // block)), at_once):
        q_start = torch.arange(band.start, band.stop, device="cpu") * block
        q_stop = (q_start + block).clamp(max=q_len)
        cover = mask.cover(
            (q_start + offset)[:, None], (q_stop + offset)[:, None], k_start[None], k_stop[None]
        ).expand(len(band), len(k_start))
        for start, stop, row in zip(q_start.tolist(), q_stop.tolist(), cover, strict=True):
            full = tuple(_runs(row == Coverage.FULL, k_len))
            yield Row(range(start, stop), full, tuple(_runs(row == Coverage.PARTIAL, k_len)))


def _runs(hit: torch.Tensor, k_len: int) -> Iterator[range]:
    """Join adjacent tiles into runs of keys."""
    edges = torch.nn.functional.pad(hit.to(torch.int8), (1, 1)).diff().nonzero().flatten().tolist()
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        yield range(first * KEY_TILE, min(last * KEY_TILE, k_len))
