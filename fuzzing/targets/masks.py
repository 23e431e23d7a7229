"""Masks: the laws of their algebra, and every quick answer against the whole matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from choice import Choice, Seeded
from fuzzing.target import Target
from mask_maker import make_mask
from regard.engine.schedule import schedule
from regard.errors import MaskError
from regard.masks import Mask

__all__ = ["MASKS"]

LENGTHS = (1, 2, 3, 5, 9, 17, 31, 33, 64, 65, 130)
# Tiles are all pairs of so many ranges of queries and of keys.
CUTS = 16


class Case:
    """A random mask for random lengths, and its whole matrix."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.q, self.k = choice.pick(LENGTHS), choice.pick(LENGTHS)
        self.batch, self.heads = choice.integer(1, 3), choice.integer(1, 2)
        self.mask = self.another()
        self.dense = self.matrix(self.mask)

    def another(self) -> Mask:
        return make_mask(self.choice, self.q, self.k, self.batch, self.heads)

    def matrix(self, mask: Mask) -> Tensor:
        """The mask's matrix, (batch, heads, q, k)."""
        return mask.dense(self.q, self.k).expand(self.batch, self.heads, self.q, self.k)

    def same(self, mask: Mask, wanted: Tensor, what: str) -> None:
        if not torch.equal(self.matrix(mask), wanted):
            raise AssertionError(f"{what}: {mask!r} for {self.q} queries and {self.k} keys")

    def cut(self, length: int) -> tuple[Tensor, Tensor]:
        """The starts and stops of a few half-open intervals."""
        starts = [self.choice.integer(0, length - 1) for _ in range(CUTS)]
        stops = [self.choice.integer(start + 1, length) for start in starts]
        return torch.tensor(starts), torch.tensor(stops)


def join(case: Case) -> int:
    other = case.another()
    matrix = case.matrix(other)
    case.same(case.mask & other, case.dense & matrix, "and")
    case.same(case.mask | other, case.dense | matrix, "or")
    case.same(~case.mask, ~case.dense, "not")
    return 3


def de_morgan(case: Case) -> int:
    other = case.another()
    for one, same in (
        (~(case.mask & other), ~case.mask | ~other),
        (~(case.mask | other), ~case.mask & ~other),
    ):
        case.same(one, case.matrix(same), "De Morgan")
    case.same(~~case.mask, case.dense, "not not")
    return 3


def coverage(case: Case) -> int:
    """EMPTY tiles hold no allowed pair and FULL ones no forbidden pair, in any batch row or head."""
    (top, bottom), (left, right) = case.cut(case.q), case.cut(case.k)
    first = case.k - case.q
    found = case.mask.cover(top[:, None] + first, bottom[:, None] + first, left, right).expand(CUTS, CUTS)
    # Pairs allowed by any and by all of the matrices, in each tile: a table of sums over all corners.
    sums = [
        torch.nn.functional.pad(flags.long(), (1, 0, 1, 0)).cumsum(0).cumsum(1)
        for flags in (case.dense.amax((0, 1)), case.dense.amin((0, 1)))
    ]
    some, always = (
        s[bottom][:, right] - s[top][:, right] - s[bottom][:, left] + s[top][:, left] for s in sums
    )
    cells = (bottom - top)[:, None] * (right - left)
    wrong = ((found == 0) & (some > 0)) | ((found == 2) & (always < cells))
    assert not wrong.any(), (case.mask, found, some, always, cells)
    return CUTS * CUTS


def json_round_trip(case: Case) -> int:
    try:
        data = case.mask.to_json()
    except MaskError:
        # A function among its parts cannot be written down.
        assert "Where" in repr(case.mask) or "<lambda>" in repr(case.mask), case.mask
        return 1
    read = Mask.from_json(data)
    assert read == case.mask, (read, case.mask)
    assert hash(read) == hash(case.mask), case.mask
    assert read.to_json() == data, data
    case.same(read, case.dense, "from_json")
    return 1


def spans(case: Case) -> int:
    found = case.mask.spans(torch.arange(case.k - case.q, case.k))
    if found is None:
        return 1
    low, high = found
    keys = torch.arange(case.k)
    between = (low[..., None] <= keys) & (keys < high[..., None])
    if not torch.equal(between.expand_as(case.dense), case.dense):
        raise AssertionError(f"spans of {case.mask!r}")
    return 1


def pairs(case: Case) -> int:
    mask = case.mask
    counted, wanted = mask.pairs(case.q, case.k), int(mask.dense(case.q, case.k).sum())
    told_apart = (mask.batch or 1) * (mask.heads or 1)
    matrices = case.mask.dense(case.q, case.k).numel() // (case.q * case.k)
    # A mask that tells rows apart may still answer with one matrix for all.
    assert counted * matrices == wanted * told_apart, (counted, wanted, mask)
    return 1


def selected_rows(case: Case) -> int:
    for row in range(case.batch):
        one = case.mask.select(row)
        got = one.dense(case.q, case.k).expand(1, case.heads, case.q, case.k)
        assert torch.equal(got[0], case.dense[row]), (one, row)
    return case.batch


def relative(case: Case) -> int:
    if case.mask.relative:
        columns = case.choice.integer(1, 7)
        moved = case.mask.tile((case.k - case.q + columns, case.k + columns), (columns, case.k + columns))
        assert torch.equal(moved.expand_as(case.dense), case.dense), case.mask
    return 1


def scheduled(case: Case) -> int:
    """What no run visits is hidden, what a full run visits is allowed, and nothing is visited twice."""
    block, offset = case.choice.pick((1, 16, 64)), case.k - case.q
    visited = torch.zeros(case.q, case.k, dtype=torch.int64)
    for row in schedule(case.mask, case.q, case.k, block, offset):
        rows = slice(row.queries.start, row.queries.stop)
        for run in row.full:
            assert case.dense[:, :, rows, run.start : run.stop].all(), (case.mask, row)
            visited[rows, run.start : run.stop] += 1
        for run in row.partial:
            visited[rows, run.start : run.stop] += 1
    assert int(visited.max()) <= 1, (case.mask, "a pair is visited twice")
    assert not case.dense[:, :, visited == 0].any(), (case.mask, "an allowed pair is never visited")
    return 1


LAWS = (
    join,
    de_morgan,
    coverage,
    json_round_trip,
    spans,
    pairs,
    selected_rows,
    relative,
    scheduled,
)


def check(seed: int) -> int:
    choice = Seeded(seed)
    law = choice.pick(LAWS)
    return law(Case(choice))


MASKS = Target("masks", "laws and quick answers of a mask, against its matrix", check, tested=200)
