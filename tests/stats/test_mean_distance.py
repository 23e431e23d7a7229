"""How far back rows look."""

from __future__ import annotations

import torch

from regard.stats import Frame, MapTile, MeanDistance
from stats.harness import close, fold, in_any_cut, observed


@in_any_cut()
def test_mean_distance_matches_dense_in_any_tile_order(dense, seed):
    close(observed(MeanDistance(), dense, seed), (dense.weights * dense.distance).sum(-1))


def test_mean_distance_is_accurate_in_float32_at_position_a_million():
    n, width = 1_000_000, 513
    frame = Frame(batch=1, heads=1, q=1, k=n)
    weights = torch.rand(1, 1, 1, width, dtype=torch.float64).softmax(-1)
    expected = (weights * torch.arange(width - 1, -1, -1)).sum(-1)
    weights, cols = weights.float(), range(n - width, n)
    tile = MapTile(frame, range(1), range(1), range(1), cols, weights)
    torch.testing.assert_close(fold(MeanDistance(), frame, [tile]).double(), expected, rtol=1e-6, atol=0)


def test_attention_to_oneself_is_at_distance_zero_however_late():
    n = 1_000_000
    frame = Frame(batch=1, heads=1, q=65, k=n)
    tile = MapTile(frame, range(1), range(1), range(65), range(n - 65, n), torch.eye(65)[None, None])
    assert fold(MeanDistance(), frame, [tile]).abs().max() == 0


def test_keys_after_the_query_are_at_negative_distances():
    frame = Frame(batch=1, heads=1, q=1, k=1)
    late = Frame(batch=1, heads=1, q=3, k=3)
    tile = MapTile(late, range(1), range(1), range(1), range(2, 3), torch.ones(1, 1, 1, 1))
    assert fold(MeanDistance(), late, [tile]).tolist() == [[[-2.0, 0.0, 0.0]]]
    assert fold(MeanDistance(), frame, []).tolist() == [[[0.0]]]
