"""The heaviest keys of each row."""

from __future__ import annotations

import random
import re

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import Frame, HeadSum, TopK, top_k
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed, random_tiles


def dense_top_k(weights, k):
    """By sorting Python tuples, row by row."""
    listed = [
        sorted((-w, j) for j, w in enumerate(row) if w > 0)[:k] for row in weights.flatten(0, 2).tolist()
    ]
    listed = [row + [(0.0, -1)] * (k - len(row)) for row in listed]
    found = torch.tensor(listed, dtype=torch.float64).view(*weights.shape[:3], k, 2)
    return -found[..., 0], found[..., 1].long()


@in_any_cut(k=st.integers(1, 70))
def test_top_k_matches_dense_in_any_tile_order(dense, seed, k):
    k = min(k, dense.frame.k)
    top = observed(TopK(k), dense, seed)
    weight, key = dense_top_k(dense.weights, k)
    close(top.weight, weight, atol=0)
    assert torch.equal(top.key, key)


@in_any_cut(tries=40, k=st.integers(1, 20))
def test_of_equal_weights_the_earlier_keys_are_listed_in_any_tile_order(dense, seed, k):
    dense.weights = (dense.weights * 4).round() / 4
    k = min(k, dense.frame.k)
    assert torch.equal(observed(TopK(k), dense, seed).key, dense_top_k(dense.weights, k)[1])


@pytest.mark.parametrize("k", [1, 8, 63])
def test_even_attention_lists_the_first_keys(k):
    dense = dense_map(0, 1, 2, 3, 130)
    dense.weights = torch.full_like(dense.weights, 1 / 130)
    for seed in range(5):
        assert (observed(TopK(k), dense, seed).key == torch.arange(k)).all()


def test_rows_with_fewer_keys_are_filled_with_weight_zero_and_key_minus_one():
    dense = dense_map(0, 1, 1, 3, 3, kind="causal")
    top = in_one(TopK(3), dense)
    assert top.key.sort(-1).values.tolist() == [[[[-1, -1, 0], [-1, 0, 1], [0, 1, 2]]]]
    assert (top.weight[top.key == -1] == 0).all()


def test_top_k_of_many_narrow_tiles_matches_one_wide_tile():
    dense = dense_map(0, 1, 2, 65, 520, kind="causal")
    tiles = [
        t for s in range(0, 520, 40) if (t := dense.tile(range(1), range(2), range(65), range(s, s + 40)))
    ]
    expected = in_one(TopK(8), dense)
    for order in (tiles, tiles[::-1], random.Random(0).sample(tiles, len(tiles))):
        assert torch.equal(fold(TopK(8), dense.frame, order).key, expected.key)


def test_top_k_in_float32_lists_weights_as_they_are():
    dense = dense_map(0, 1, 2, 65, 129)
    dense.weights, dense.values = dense.weights.float(), dense.values.float()
    top = fold(TopK(5), dense.frame, random_tiles(dense, random.Random(2)), random.Random(3))
    assert torch.equal(top.weight, dense.weights.topk(5).values)


@pytest.mark.parametrize("statistic", [TopK, HeadSum])
def test_more_keys_than_there_are_is_refused(statistic):
    name = statistic.__name__
    message = f"{name}(k=9) asks for 9 keys of each query, and there are 4; use {name}(4) or fewer."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        statistic(9).check(Frame(batch=1, heads=1, q=7, k=4))
    statistic(9).check(Frame(batch=1, heads=1, q=7, k=9))
    statistic(9).check(Frame(batch=1, heads=1, q=7, k=0))


def test_no_keys_is_refused():
    with pytest.raises(StatisticError, match=r"^TopK got k=0; it must be at least 1\.$"):
        TopK(0)


def test_float32_weights_give_the_keys_that_a_stable_sort_gives():
    weight = torch.tensor([[0.25, 0.5, 0.25, 0.0, 0.5, 1e-30]])
    key = torch.tensor([[0, 3, 70, 71, 2**31 - 2, 2**31 - 1]])
    weights, keys = top_k._heaviest(weight, key, 5)
    exact, wanted = top_k._heaviest(weight.double(), key, 5)
    assert torch.equal(keys, wanted)
    assert torch.equal(weights.double(), exact)
