"""The window a head would need."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import ReceptiveWindow
from stats.harness import dense_map, fold, in_any_cut, in_one, observed


def dense_window(dense, share):
    """Try every window."""
    batch, heads, q, k = dense.weights.shape
    found = torch.zeros(batch, heads, dtype=torch.int64)
    for w in range(max(q, k), 0, -1):
        inside = (dense.weights * (dense.distance.abs() < w)).sum((-2, -1))
        found[inside >= share * dense.weights.sum((-2, -1)) - 1e-12] = w
    found[dense.weights.sum((-2, -1)) == 0] = 0
    return found


@in_any_cut(share=st.sampled_from([0.1003, 0.5007, 0.9001]))
def test_receptive_window_matches_dense_in_any_tile_order(dense, seed, share):
    assert torch.equal(observed(ReceptiveWindow(share), dense, seed), dense_window(dense, share))


def test_attention_to_oneself_needs_a_window_of_one():
    dense = dense_map(0, 1, 1, 65, 65)
    dense.weights = torch.eye(65, dtype=torch.float64)[None, None]
    assert in_one(ReceptiveWindow(1.0), dense).tolist() == [[1]]


def test_a_window_mask_bounds_the_receptive_window():
    dense = dense_map(0, 2, 2, 63, 63, kind="window")
    assert (in_one(ReceptiveWindow(1.0), dense) == 5).all()


def test_the_window_of_an_empty_map_is_zero():
    assert fold(ReceptiveWindow(), dense_map(0, 1, 2, 3, 3).frame, []).tolist() == [[0, 0]]


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(
        StatisticError, match=rf"^ReceptiveWindow got share={share}; wanted more than 0, at most 1\.$"
    ):
        ReceptiveWindow(share)
