"""The largest score of each row, and its key."""

from __future__ import annotations

import random

import torch

from regard.stats import Entropy, MaxScore
from stats.harness import dense_map, fold, in_any_cut, in_one, observed, random_tiles


@in_any_cut()
def test_max_score_matches_dense_in_any_tile_order(dense, seed):
    top = observed(MaxScore(), dense, seed)
    value, key = dense.scores.max(-1)
    assert torch.equal(top.value, value)
    assert torch.equal(top.key, key.masked_fill(value == -torch.inf, -1))


@in_any_cut()
def test_of_equal_scores_the_first_key_is_named_in_any_tile_order(dense, seed):
    dense.scores = dense.scores.clamp(-2, 2).round().masked_fill(~dense.allowed, -torch.inf)
    rows = dense.scores.flatten(0, 2).tolist()
    expected = [row.index(max(row)) if max(row) > -torch.inf else -1 for row in rows]
    assert observed(MaxScore(), dense, seed).key.flatten().tolist() == expected


def test_a_dead_row_has_no_largest_score_and_no_key():
    dense = dense_map(0, 1, 1, 65, 63, kind="ragged")
    dead = ~dense.allowed.any(-1)
    assert dead.any()
    top = in_one(MaxScore(), dense)
    assert (top.value[dead] == -torch.inf).all()
    assert (top.key[dead] == -1).all()


def test_a_score_that_is_not_a_number_is_not_hidden():
    dense = dense_map(0, 1, 1, 3, 65)
    dense.scores[0, 0, 1, 7] = torch.nan
    for seed in range(8):
        top = observed(MaxScore(), dense, seed)
        assert top.value.isnan().tolist() == [[[False, True, False]]]
        assert top.key[0, 0, 1] == 7


def test_max_score_keeps_what_it_has_where_a_tile_has_less():
    dense = dense_map(0, 1, 1, 5, 64)
    tiles = random_tiles(dense, random.Random(1))
    assert torch.equal(fold(MaxScore(), dense.frame, tiles * 2).key, in_one(MaxScore(), dense).key)


def test_only_statistics_that_say_so_need_scores():
    assert MaxScore().needs_scores
    assert not Entropy().needs_scores
