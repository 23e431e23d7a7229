"""The schedule visits what the mask allows, and little else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.engine.schedule import KEY_TILE, ROUND, Row, chunks, schedule
from regard.masks import Causal, Documents, Mask, Where, Window
from strategies import masks


def visited(rows: list[Row], q: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which cells are visited unmasked, and which with the mask."""
    full, partial = torch.zeros(2, q, k, dtype=torch.int64).unbind()
    for row in rows:
        for where, runs in ((full, row.full), (partial, row.partial)):
            for run in runs:
                where[row.queries.start : row.queries.stop, run.start : run.stop] += 1
    return full, partial


def allowed_by(mask: Mask, q: int, k: int) -> torch.Tensor:
    """(any, all) over batch and heads of the dense mask."""
    dense = mask.dense(q, k)
    return dense.view(-1, q, k)


@st.composite
def problems(draw):
    q, k = draw(st.integers(1, 300)), draw(st.integers(1, 400))
    mask = draw(masks(q, k, batch=1, heads=1))
    return mask.bind(1, 1), q, k, draw(st.sampled_from([16, 64, 100]))


@given(problems())
def test_full_runs_are_fully_allowed_and_nothing_allowed_is_left_out(problem):
    mask, q, k, block = problem
    rows = list(schedule(mask, q, k, block, k - q))
    assert [i for row in rows for i in row.queries] == list(range(q))
    full, partial = visited(rows, q, k)
    dense = allowed_by(mask, q, k)
    assert bool((full + partial <= 1).all())
    assert bool(dense.all(0)[full == 1].all())
    assert not bool(dense.any(0)[(full + partial) == 0].any())


def test_a_causal_window_visits_its_band_and_a_rounding_edge():
    n, window, block = 100_000, 1024, 256
    rows = list(schedule(Causal() & Window(window), n, n, block, 0))
    cells = sum(len(row.queries) * row.keys for row in rows)
    exact_blocks = sum(min(row.queries.stop, window + block) * len(row.queries) for row in rows[:8])
    assert exact_blocks > 0
    assert cells <= n * (window + block + 2 * ROUND)


def test_a_million_tokens_need_one_row_of_the_schedule_at_a_time():
    rows = schedule(Causal() & Window(4096), 1_000_000, 1_000_000, 1024, 0)
    first = next(rows)
    assert first.queries == range(1024)
    assert first.keys == 1024


def test_documents_are_not_crossed():
    rows = schedule(Documents(lengths=[1000, 3000, 96]), 4096, 4096, 100, 0)
    for row in rows:
        for run in (*row.full, *row.partial):
            assert run.start >= (0 if row.queries.start < 1000 else 1000 - ROUND)


class Counting(Mask):
    """A causal mask that counts the tiles it is asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def allows(self, q, k):
        return k <= q

    def cover(self, q_start, q_stop, k_start, k_stop):
        found = Causal().cover(q_start, q_stop, k_start, k_stop)
        self.asked += found.numel()
        return found


def test_a_decode_step_asks_about_one_row_of_tiles():
    mask = Counting()
    list(schedule(mask, 1, 10_000, 256, 9_999))
    assert mask.asked == -(-10_000 // KEY_TILE)


def test_functions_are_asked_anew_each_time():
    flag = torch.tensor(True)
    mask = Where(lambda b, h, i, j: flag & (i >= j)).bind(1, 1)
    assert any(row.keys for row in schedule(mask, 64, 64, 64, 0))
    flag.fill_(False)
    assert not any(row.keys for row in schedule(mask, 64, 64, 64, 0))


@pytest.mark.parametrize(("q", "k"), [(0, 5), (5, 0), (0, 0)])
def test_empty_sides_have_rows_without_keys(q, k):
    for mask in (None, Causal()):
        assert sum(row.keys for row in schedule(mask, q, k, 64, k - q)) == 0


def test_chunks_cut_a_range_and_keep_its_end():
    assert list(chunks(range(3, 10), 4)) == [range(3, 7), range(7, 10)]
