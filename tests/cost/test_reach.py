"""Allowed pairs, counted by formula and cell by cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cost import Reach
from regard.errors import RegardError
from regard.masks import BigBird, Causal, Longformer, Window

KINDS = st.sampled_from(["full", "window", "chunk"])


@given(KINDS, st.integers(1, 70), st.integers(1, 66), st.data(), st.booleans())
def test_pairs_are_the_cells_of_the_mask(kind, size, keys, data, causal):
    queries = data.draw(st.integers(0, keys))
    reach = Reach(kind, None if kind == "full" else size)
    mask = reach.as_mask(causal)
    cells = queries * keys if mask is None else int(mask.dense(queries, keys).sum())
    assert reach.pairs(queries, keys, causal) == cells


@given(st.integers(1, 70), st.integers(1, 66), st.booleans())
def test_sparse_queries_see_as_many_keys_as_they_may_and_no_more(size, n, causal):
    seen = [min(size, i + 1 if causal else n) for i in range(n)]
    assert Reach("sparse", size).pairs(n, n, causal) == sum(seen)


@pytest.mark.parametrize("mask", [Longformer(8, [0, 30]), BigBird(7, 63), Causal() & Window(9)], ids=str)
def test_a_mask_counts_its_own_cells(mask):
    assert Reach("mask", mask=mask).pairs(63, 63) == int(mask.dense(63, 63).sum())


def test_a_mask_of_intervals_is_counted_at_lengths_no_matrix_has():
    n, w = 1_000_000, 4096
    assert Reach("mask", mask=Causal() & Window(w)).pairs(n, n) == Reach("window", w).pairs(n, n)


def test_a_mask_without_intervals_is_refused_where_counting_takes_too_long():
    with pytest.raises(RegardError, match=r"100000 × 100000 cells are too many; wanted at most 268435456"):
        Reach("mask", mask=Longformer(8, 1)).pairs(100_000, 100_000)


@given(st.integers(1, 70), st.integers(1, 200), KINDS)
def test_what_is_kept_is_enough_for_the_next_query(size, n, kind):
    reach = Reach(kind, None if kind == "full" else size)
    assert reach.pairs(1, n) <= reach.kept(n) <= n


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("diagonal",), "attention is 'diagonal'; wanted one of full, window, chunk, sparse, mask"),
        (("window",), "window attention has the size None; wanted keys, 1 or more"),
        (("chunk", 0), "chunk attention has the size 0; wanted keys, 1 or more"),
        (("full", 8), "full attention has no size, and 8 was given; leave it out"),
        (("mask",), "a mask and the kind 'mask' belong together"),
    ],
)
def test_an_impossible_reach_is_refused(arguments, message):
    with pytest.raises(RegardError, match=message):
        Reach(*arguments)


def test_a_reach_is_read_from_text():
    assert [Reach.parse(text) for text in ("full", "window:63", "chunk:8k", "sparse:2K")] == [
        Reach(),
        Reach("window", 63),
        Reach("chunk", 8192),
        Reach("sparse", 2048),
    ]
    with pytest.raises(RegardError, match=r"'windy:3'; wanted full, window:4096, chunk:8192 or sparse:2048"):
        Reach.parse("windy:3")


def test_more_queries_than_keys_are_refused():
    with pytest.raises(RegardError, match="3 queries against 2 keys; wanted no more queries than keys"):
        Reach().pairs(3, 2)


def test_sparse_attention_has_no_mask():
    with pytest.raises(RegardError, match="no mask can say which"):
        Reach("sparse", 8).as_mask()
