"""Entropy of the rows."""

from __future__ import annotations

import math

import torch

from regard.masks import Dense
from regard.stats import Entropy, Frame, MapTile
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed


def dense_entropy(weights):
    return -torch.where(weights > 0, weights * weights.log(), 0.0).sum(-1)


@in_any_cut()
def test_entropy_matches_dense_in_any_tile_order(dense, seed):
    close(observed(Entropy(), dense, seed), dense_entropy(dense.weights))


def test_entropy_of_a_dead_row_is_zero():
    dense = dense_map(0, 1, 1, 65, 63, kind="ragged")
    dead = ~dense.allowed.any(-1)
    assert dead.any()
    entropy = observed(Entropy(), dense, 0)
    assert (entropy[dead] == 0).all()
    assert (entropy[~dead] >= 0).all()


def test_entropy_of_even_attention_is_the_log_of_the_number_of_keys():
    dense = dense_map(0, 1, 1, 1, 63)
    dense.weights = torch.full_like(dense.weights, 1 / 63)
    close(in_one(Entropy(), dense), torch.full((1, 1, 1), math.log(63), dtype=torch.float64))


def test_a_weight_that_underflows_adds_nothing_to_the_entropy():
    frame = Frame(batch=1, heads=1, q=1, k=2)
    tile = MapTile(frame, range(1), range(1), range(1), range(2), torch.tensor([[[[1.0, 0.0]]]]))
    assert fold(Entropy(), frame, [tile]).tolist() == [[[0.0]]]


def test_a_score_of_minus_infinity_without_a_mask_adds_nothing_to_the_entropy():
    frame = Frame(batch=1, heads=1, q=1, k=2)
    weights, logs = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[0.0, -torch.inf]]]])
    tile = MapTile(frame, range(1), range(1), range(1), range(2), weights, log_weights_of=lambda: logs)
    assert fold(Entropy(), frame, [tile]).tolist() == [[[0.0]]]


def test_entropy_takes_log_weights_from_the_pass_rather_than_from_weights():
    frame = Frame(batch=1, heads=1, q=1, k=2, mask=Dense(torch.tensor([[True, False]])))
    weights, logs = torch.tensor([[[[0.5, 0.0]]]]), torch.tensor([[[[-3.0, -torch.inf]]]])
    allowed = torch.tensor([[[[True, False]]]])
    tile = MapTile(
        frame, range(1), range(1), range(1), range(2), weights, allowed, log_weights_of=lambda: logs
    )
    assert fold(Entropy(), frame, [tile]).item() == 1.5


def test_entropy_is_never_negative_though_a_weight_may_round_to_more_than_one():
    frame = Frame(batch=1, heads=1, q=1, k=1)
    tile = MapTile(frame, range(1), range(1), range(1), range(1), torch.tensor([[[[1.0000001]]]]))
    assert fold(Entropy(), frame, [tile]).item() == 0


def test_a_weight_that_is_not_a_number_is_not_hidden():
    frame = Frame(batch=1, heads=1, q=1, k=2)
    tile = MapTile(frame, range(1), range(1), range(1), range(2), torch.tensor([[[[torch.nan, 0.0]]]]))
    assert fold(Entropy(), frame, [tile]).isnan().all()
