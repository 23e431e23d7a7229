"""Compares two recordings: their common tokens, and the differences of their maps."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.errors import MapError
from regard.viewer.heads import Head

__all__ = ["Aligned", "Run", "align", "difference", "row_distances", "sampled"]

# In texts longer than this, tokens that are too frequent don't start a match.
EXACT = 4096
# The rows to compare for the distance of two heads, and the rows to read at once for a picture.
SAMPLED, ROWS = 64, 256
# Cells of a picture: more take seconds.
MOST = 1 << 28

Run = tuple[int, int, int]


@dataclass(frozen=True)
class Aligned:
    """Equal runs of two lists of tokens: (index in the first, index in the second, length), in order."""

    runs: list[Run]

    @property
    def count(self) -> int:
        return sum(length for _, _, length in self.runs)

    def places(self, side: int) -> Int64[Tensor, " n"]:
        """The indices of the common tokens in one of the texts."""
        parts = [torch.arange(run[side], run[side] + run[2]) for run in self.runs]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)


def align(first: list[str], second: list[str]) -> Aligned:
    """Align the tokens of two texts by their characters.

    >>> align(["The", " cat", " sat"], ["The", " dog", " sat"]).runs
    [(0, 0, 1), (2, 2, 1)]
    """
    begin = 0
    while begin < min(len(first), len(second)) and first[begin] == second[begin]:
        begin += 1
    end, room = 0, min(len(first), len(second)) - begin
    while end < room and first[-1 - end] == second[-1 - end]:
        end += 1
    a, b = first[begin : len(first) - end], second[begin : len(second) - end]
    found = SequenceMatcher(None, a, b, autojunk=max(len(a), len(b)) > EXACT).get_matching_blocks()
    runs = [(begin + one.a, begin + one.b, one.size) for one in found]
    runs = [(0, 0, begin), *runs, (len(first) - end, len(second) - end, end)]
    return Aligned([run for run in runs if run[2]])


def difference(
    heads: tuple[Head, Head], queries: Aligned, keys: Aligned, rows: range, cols: range, size: int
) -> Float[Tensor, "rows cols"]:
    """The first map minus the second over common tokens, in at most `size` blocks a side.

    `rows` and `cols` count common tokens. A block is its cell with the largest difference.
    """
    for name, span, most in (("q", rows, queries.count), ("k", cols, keys.count)):
        if not 0 <= span.start < span.stop <= most:
            raise MapError(
                f"{name}0 is {span.start} and {name}1 is {span.stop}; wanted {name}0 below {name}1, both "
                f"between 0 and {most}: so many tokens are in both texts."
            )
    if len(rows) * len(cols) > MOST:
        raise MapError(
            f"{len(rows)} × {len(cols)} cells are too many for one picture; wanted at most {MOST:,}."
        )
    at = [
        (queries.places(side)[rows.start : rows.stop], keys.places(side)[cols.start : cols.stop])
        for side in (0, 1)
    ]
    block = max(1, -(-max(len(rows), len(cols)) // size))
    strips = []
    step = max(block, ROWS // block * block)
    for start in range(0, len(rows), step):
        first, second = (
            head.map[0, 0, q[start : start + step], k].float().cpu()
            for head, (q, k) in zip(heads, at, strict=True)
        )
        strips.append(_largest(first - second, block))
    return torch.cat(strips)


def row_distances(layers: tuple[Tensor, Tensor], keys: Aligned) -> Float[Tensor, " heads"]:
    """The mean total variation distance of the rows of two layers' heads.

    Both are (heads, rows, keys). Weight on tokens that the other text lacks counts as one key.
    """
    shared = [rows[..., keys.places(side)].double() for side, rows in enumerate(layers)]
    rest = [rows.double().sum(-1) - part.sum(-1) for rows, part in zip(layers, shared, strict=True)]
    apart = (shared[0] - shared[1]).abs().sum(-1) + (rest[0] - rest[1]).abs()
    return apart.mean(-1) / 2


def sampled(queries: Aligned) -> Int64[Tensor, " n"]:
    """The common queries to compare: all, or an even sample."""
    count = queries.count
    return torch.linspace(0, count - 1, min(count, SAMPLED)).round().long()


def _largest(x: Float[Tensor, "q k"], block: int) -> Float[Tensor, "rows cols"]:
    """The entry with the largest absolute value in every block."""
    if block == 1:
        return x
    fill = (0, -x.shape[1] % block, 0, -x.shape[0] % block)
    high = torch.nn.functional.pad(x, fill).unflatten(1, (-1, block)).unflatten(0, (-1, block))
    most, least = high.amax((1, 3)), high.amin((1, 3))
    return torch.where(most >= -least, most, least)
