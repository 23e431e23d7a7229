"""The schedule visits what the mask allows, and little else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.harness import own_random_state
from regard import attention
from regard.engine.schedule import GRID_CELLS, KEY_TILE, ROUND, Row, chunks, schedule
from regard.masks import And, Causal, Chunk, Documents, Mask, Prefix, Where, Window
from strategies import masks


def visited(rows: list[Row], q: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """How often each cell is visited unmasked, and how often with the mask."""
    full, partial = torch.zeros(2, q, k, dtype=torch.int64).unbind()
    for row in rows:
        for where, runs in ((full, row.full), (partial, row.partial)):
            for run in runs:
                where[row.queries.start : row.queries.stop, run.start : run.stop] += 1
    return full, partial


@st.composite
def problems(draw):
    q, k = draw(st.integers(1, 300)), draw(st.integers(1, 400))
    batch, heads = draw(st.sampled_from([(1, 1), (3, 1), (1, 2), (2, 2)]))
    mask = draw(masks(q, k, batch, heads))
    return mask, q, k, draw(st.sampled_from([16, 64, 100]))


@given(problems())
def test_full_runs_are_fully_allowed_and_nothing_allowed_is_left_out(problem):
    mask, q, k, block = problem
    with own_random_state():
        rows = list(schedule(mask, q, k, block, k - q))
        dense = mask.dense(q, k).view(-1, q, k)
    assert [i for row in rows for i in row.queries] == list(range(q))
    assert all(0 < len(row.queries) <= block for row in rows)
    full, partial = visited(rows, q, k)
    assert bool((full + partial <= 1).all())
    assert bool(dense.all(0)[full == 1].all())
    assert not bool(dense.any(0)[(full + partial) == 0].any())


@given(
    lengths=st.tuples(st.integers(1, 300), st.integers(1, 400)),
    block=st.sampled_from([16, 64, 100]),
    shift=st.none() | st.integers(-400, 400),
    window=st.none() | st.tuples(st.integers(1, 400), st.integers(1, 400)),
    prefix=st.none() | st.integers(0, 400),
    cut=st.none() | st.integers(0, 400),
)
def test_intervals_are_visited_to_the_next_round_number(lengths, block, shift, window, prefix, cut):
    q, k = lengths
    with own_random_state():
        parts = [Causal(shift or 0)]
        parts += [] if window is None else [Window(*window)]
        parts += [] if prefix is None else [Prefix(prefix)]
        parts += [] if cut is None or cut > k or q > k else [Documents(lengths=[cut, k - cut])]
        mask = And(*parts)
        rows, dense = list(schedule(mask, q, k, block, k - q)), mask.dense(q, k)
    for row in rows:
        here = dense[row.queries.start : row.queries.stop]
        seen, shared = here.any(0).nonzero().flatten(), here.all(0).nonzero().flatten()
        if not len(seen):
            assert row.keys == 0
            continue
        assert row.keys <= int(seen[-1]) + 1 - int(seen[0]) + 2 * (ROUND - 1)
        if len(shared):
            assert sum(map(len, row.full)) >= len(shared) - 2 * (ROUND - 1)


@pytest.mark.parametrize("mask", [Causal(), Causal() & Window(4096), Causal() & Chunk(4096)], ids=str)
def test_a_million_tokens_are_scheduled_in_proportion_to_the_allowed_pairs(mask):
    n, block = 1_000_000, 1024
    rows = list(schedule(mask, n, n, block, 0))
    assert len(rows) == -(-n // block)
    visits = sum(len(row.queries) * row.keys for row in rows)
    masked = sum(len(row.queries) * sum(map(len, row.partial)) for row in rows)
    edge = n * (2 * block + 4 * KEY_TILE)
    assert visits <= mask.pairs(n) + edge
    assert masked <= edge


def test_a_million_tokens_need_one_row_of_the_schedule_at_a_time():
    rows = schedule(Causal() & Window(4096), 1_000_000, 1_000_000, 1024, 0)
    assert next(rows) == Row(range(1024), (), (range(1024),))


def test_documents_are_not_crossed():
    for row in schedule(Documents(lengths=[1000, 3000, 96]), 4096, 4096, 100, 0):
        first, last = row.queries.start, row.queries.stop - 1
        low = 0 if first < 1000 else 1000 if first < 4000 else 4000
        high = 1000 if last < 1000 else 4000 if last < 4000 else 4096
        for run in (*row.full, *row.partial):
            assert low - ROUND < run.start < run.stop < high + ROUND


class Counting(Mask):
    """A causal mask without intervals that counts the tiles it is asked about."""

    def __init__(self) -> None:
        self.asked = []

    def allows(self, q, k):
        return k <= q

    def cover(self, q_start, q_stop, k_start, k_stop):
        found = Causal().cover(q_start, q_stop, k_start, k_stop)
        self.asked.append(found.numel())
        return found


def test_a_decode_step_asks_about_one_row_of_tiles():
    mask = Counting()
    list(schedule(mask, 1, 10_000, 256, 9_999))
    assert mask.asked == [-(-10_000 // KEY_TILE)]


def test_a_million_tokens_are_asked_about_a_band_at_a_time():
    mask = Counting()
    rows = schedule(mask, 1_000_000, 1_000_000, 1024, 0)
    assert next(rows).queries == range(1024)
    assert len(mask.asked) == 1
    assert mask.asked[0] <= GRID_CELLS


def test_equal_masks_are_scheduled_once_and_others_are_not():
    asked = []

    @dataclass(frozen=True)
    class Sees(Mask):
        reach: int

        def allows(self, q, k):
            return k <= q + self.reach

        def cover(self, *edges):
            asked.append(self.reach)
            return super().cover(*edges)

    for mask in (Sees(1), Sees(1), Sees(2)):
        list(schedule(mask, 65, 63, 16, -2))
    assert asked == [1, 2]


def test_masks_that_are_functions_are_evaluated_in_every_call():
    flag = torch.tensor(True)
    mask = Where(lambda b, h, i, j: flag & (i >= j)).bind(1, 1)
    assert any(row.keys for row in schedule(mask, 64, 64, 64, 0))
    flag.fill_(False)
    assert not any(row.keys for row in schedule(mask, 64, 64, 64, 0))


def test_a_mask_of_your_own_need_not_have_a_hash():
    @dataclass
    class Near(Mask):
        reach: int

        def allows(self, q, k):
            return (q - k).abs() < self.reach

    q, k, v = torch.randn(3, 1, 1, 65, 8).unbind()
    torch.testing.assert_close(attention(q, k, v, Near(5)), attention(q, k, v, Window(5)))
    torch.testing.assert_close(
        attention(q, k, v, Near(5) & Causal()), attention(q, k, v, Causal() & Window(5))
    )


@pytest.mark.parametrize(("q", "k"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("mask", [None, Causal(), Causal() | Prefix(2)], ids=str)
def test_empty_sides_have_rows_without_keys(mask, q, k):
    rows = list(schedule(mask, q, k, 64, k - q))
    assert sum(len(row.queries) for row in rows) == q
    assert sum(row.keys for row in rows) == 0


def test_chunks_cut_a_range_and_keep_its_end():
    assert list(chunks(range(3, 10), 4)) == [range(3, 7), range(7, 10)]
    assert list(chunks(range(3, 3), 4)) == []
