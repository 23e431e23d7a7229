"""Sums by token equal what the dense map says, for every token however often it occurs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from regard import AttentionMap, Causal, Window
from regard.atlas import repeats
from regard.atlas.repeats import token_mass


def dense_mass(seen, q_ids, k_ids, shift, places):
    """As it is defined: every cell, one by one."""
    weights = seen.dense()[0]
    _, q, k = weights.shape
    match = torch.zeros(q, k)
    q_ids, k_ids = q_ids.tolist(), k_ids.tolist()
    for i in range(q):
        for j in range(shift, k):
            place, own = j - shift, i + k - q
            apart = {"before": place < own, "others": place != own, "any": True}[places]
            match[i, j] = float(apart and q_ids[i] == k_ids[place])
    return (weights * match).sum(-1)


def random_map(q, k, mask, bias=None):
    return AttentionMap.of(torch.randn(1, 4, q, 8), torch.randn(1, 2, k, 8), mask=mask, bias=bias)


@examples(25)
@given(
    st.integers(1, 33),
    st.integers(0, 5),
    st.sampled_from([0, 1]),
    st.sampled_from(["before", "others", "any"]),
    st.sampled_from([None, Causal(), Causal() & Window(5)]),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_sums_by_token_are_those_of_the_dense_map(q, more, shift, places, mask, vocabulary, rows):
    k = q + more
    seen = random_map(q, k, mask)
    ids = torch.randint(0, vocabulary, (k,))
    before = repeats.ROWS, repeats.CELLS
    # Small blocks, so that small texts need several.
    repeats.ROWS, repeats.CELLS = rows, 4 * rows * 3
    try:
        found = token_mass(seen, ids[more:], ids, shift, places)
    finally:
        repeats.ROWS, repeats.CELLS = before
    assert torch.allclose(found, dense_mass(seen, ids[more:], ids, shift, places), atol=1e-6)


def test_a_bias_counts():
    n = 33
    seen = random_map(n, n, Causal(), bias=torch.randn(1, 4, n, n))
    ids = torch.randint(0, 4, (n,))
    assert torch.allclose(token_mass(seen, ids, ids, 1), dense_mass(seen, ids, ids, 1, "before"), atol=1e-6)


def test_no_read_is_larger_than_a_few_rows_even_where_one_token_fills_the_text(monkeypatch):
    n, largest = 1025, 0
    seen = random_map(n, n, Causal())
    read = AttentionMap.__getitem__

    def watched(self, index):
        nonlocal largest
        tile = read(self, index)
        largest = max(largest, tile.numel())
        return tile

    monkeypatch.setattr(AttentionMap, "__getitem__", watched)
    monkeypatch.setattr(repeats, "CELLS", 1 << 16)
    same = torch.zeros(n, dtype=torch.long)
    # All earlier places: everything but the query's own.
    own = torch.stack([seen.diagonal(0, h, 0) for h in range(4)])
    largest = 0
    assert torch.allclose(token_mass(seen, same, same), 1 - own, atol=1e-5)
    assert 0 < largest <= 1 << 16


@pytest.mark.parametrize("shift", [0, 1])
def test_a_text_of_one_token_has_nothing_to_sum(shift):
    assert token_mass(random_map(1, 1, Causal()), torch.tensor([3]), torch.tensor([3]), shift).sum() == 0
