"""The layout of documents in a sequence, as tables that can be queried for many ranges at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["Layout", "Stretch", "document_spans"]


class Stretch(NamedTuple):
    """Facts about the documents in ranges of positions, one row per row of ids."""

    only: Int64[Tensor, "rows *tiles"]
    """The document that fills the whole range; -1 if there is none."""
    first: Int64[Tensor, "rows *tiles"]
    """The group of the first real position; undefined without real positions."""
    last: Int64[Tensor, "rows *tiles"]
    """The group of the last real position; undefined without real positions."""
    some: Bool[Tensor, "rows *tiles"]
    """Whether any position is real, that is, not padding."""


class Layout:
    """Tables over rows of document ids (negative = padding).

    The tables are indexed by *rank*, a real position's number among the real positions of its row, which
    leaves out padding. A **group** is the shortest run of ranks that contains each of its documents
    completely: one document, unless documents interleave. Groups share no documents, and are numbered from
    left to right.

    >>> layout = Layout(torch.tensor([[4, 4, -1, 9]]))
    >>> layout.stretch(torch.tensor([0, 0, 2]), torch.tensor([2, 4, 3])).only
    tensor([[ 4, -1, -1]])
    """

    def __init__(self, ids: Int64[Tensor, "rows n"]) -> None:
        self.n = ids.shape[1]
        self.real_before = pad((ids >= 0).cumsum(1), (1, 0))  # (rows, n + 1)
        tables = [_tables(row[row >= 0]) for row in ids]
        self.by_rank = torch.stack(
            [pad(table, (0, self.n - table.shape[1])) for table in tables]
        )  # (rows, 3, n)

    def stretch(self, start: Int64[Tensor, "*tiles"], stop: Int64[Tensor, "*tiles"]) -> Stretch:
        """Facts about each half-open range of positions."""
        before = self.real_before[:, start.clamp(0, self.n)]
        count = self.real_before[:, stop.clamp(0, self.n)] - before
        row = torch.arange(len(before)).view(-1, *(1,) * start.ndim)
        document, first_run, first = self.by_rank[row, :, before.clamp(max=self.n - 1)].unbind(-1)
        _, last_run, last = self.by_rank[row, :, (before + count - 1).clamp(min=0)].unbind(-1)
        filled = (count == stop - start) & (first_run == last_run)
        return Stretch(torch.where(filled, document, -1), first, last, count > 0)


def _tables(ids: Int64[Tensor, "real"]) -> Int64[Tensor, "3 real"]:
    """The document, the run of equal ids and the group of each rank of one row."""
    if len(ids) == 0:
        return ids.expand(3, 0)
    rank = torch.arange(len(ids))
    _, name = ids.unique(return_inverse=True)
    last = torch.zeros_like(rank).scatter_reduce(0, name, rank, "amax")[name]
    # A group ends where no earlier document continues.
    reach = last.cummax(0).values
    starts_group = pad(rank[1:] > reach[:-1], (1, 0))
    starts_run = pad(ids[1:] != ids[:-1], (1, 0))
    return torch.stack([ids, starts_run.cumsum(0), starts_group.cumsum(0)])


def document_spans(
    ids: Int64[Tensor, "rows n"],
) -> tuple[Int64[Tensor, "rows n"], Int64[Tensor, "rows n"]] | None:
    """The start and stop of each position's document; None if some document is not contiguous.

    >>> document_spans(torch.tensor([[4, 4, 9]]))
    (tensor([[0, 0, 2]]), tensor([[2, 2, 3]]))
    >>> document_spans(torch.tensor([[4, 9, 4]])) is None
    True
    """
    found, position = ids.sort(dim=1, stable=True)
    name = pad(found[:, 1:] != found[:, :-1], (1, 0)).cumsum(1)
    count, first, last = torch.zeros_like(ids), torch.full_like(ids, ids.shape[1]), torch.zeros_like(ids)
    count.scatter_add_(1, name, torch.ones_like(ids))
    first.scatter_reduce_(1, name, position, "amin")
    last.scatter_reduce_(1, name, position + 1, "amax")
    size, low, high = (
        torch.zeros_like(ids).scatter_(1, position, x.gather(1, name)) for x in (count, first, last)
    )
    real = ids >= 0
    if ((high - low != size) & real).any():
        return None
    return low * real, high * real
