"""The running maximum of each row and its key, updated tile by tile."""

from __future__ import annotations

from jaxtyping import Float, Int64
from torch import Tensor

__all__ = ["update_row_maxima"]

# Columns c, c + GROUPS, c + 2 GROUPS, … of a tile form a group: a maximum over groups runs along memory.
GROUPS = 32


def update_row_maxima(
    value: Float[Tensor, "*rows"],
    key: Int64[Tensor, "*rows"],
    s: Float[Tensor, "*rows k"],
    first: int,
    shift: Float[Tensor, "*rows"] | None = None,
) -> Float[Tensor, "*rows"]:
    """Fold a tile s + shift that begins at key `first` into running maxima, in place; returns the tile's own.

    On ties the first key counts. Finding a maximum is far cheaper than finding its column. So the maximum of
    each group of columns is computed first, and one group is searched only in rows where the maximum rises.
    """
    groups = GROUPS if s.shape[-1] % GROUPS == 0 else s.shape[-1]
    lanes = s.unflatten(-1, (-1, groups))  # (*rows, lanes, groups)
    lane_maxima = lanes.amax(-2)
    top = lane_maxima.amax(-1)
    seen = top if shift is None else top + shift
    # NaN counts as larger than every number, so that it shows.
    better = (seen > value) | ((seen == value) & (first < key)) | (seen.isnan() & ~value.isnan())
    rows = better.nonzero(as_tuple=True)
    if len(rows[0]):
        value[rows] = seen[rows]
        key[rows] = _search(lanes, lane_maxima[rows], rows) + first
    return seen


def _search(lanes: Tensor, lane_maxima: Tensor, rows: tuple[Tensor, ...]) -> Int64[Tensor, " found"]:
    """The first column with the largest entry of each row; ties may be in several groups."""
    groups = lane_maxima.shape[-1]
    group = lane_maxima.argmax(-1)
    column = lanes[(*rows, slice(None), group)].argmax(-1) * groups + group
    tied = ((lane_maxima == lane_maxima.amax(-1, keepdim=True)).sum(-1) > 1).nonzero().squeeze(-1)
    if len(tied):
        column[tied] = lanes[tuple(index[tied] for index in rows)].flatten(1).argmax(-1)
    return column
