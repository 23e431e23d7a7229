"""How different heads are."""

from __future__ import annotations

import math

import torch

from regard.stats import HeadDivergence
from stats.harness import close, dense_map, in_any_cut, in_one, observed


def relative_entropy(p, m):
    return torch.where(p > 0, p * (p / m).log(), 0.0).sum(-1)


def dense_divergence(weights):
    """By the definition with relative entropies, pair of heads by pair of heads, over rows live in both."""
    batch, heads = weights.shape[:2]
    found = torch.zeros(batch, heads, heads, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for other in range(heads):
                both = (weights[b, h].sum(-1) > 0) & (weights[b, other].sum(-1) > 0)
                p, p_other = weights[b, h][both], weights[b, other][both]
                mean = (p + p_other) / 2
                js = (relative_entropy(p, mean) + relative_entropy(p_other, mean)) / 2
                found[b, h, other] = js.mean() if len(js) else 0
    return found


@in_any_cut()
def test_head_divergence_matches_dense_in_any_tile_order(dense, seed):
    close(observed(HeadDivergence(), dense, seed), dense_divergence(dense.weights))


def test_rows_that_are_dead_in_one_head_only_do_not_count():
    dense = dense_map(0, 2, 4, 63, 65, kind="ragged")
    live = dense.allowed.any(-1)
    assert (live[:, 0] != live[:, 1]).any()
    close(in_one(HeadDivergence(), dense), dense_divergence(dense.weights))


def test_a_head_does_not_differ_from_its_copy():
    dense = dense_map(0, 1, 3, 65, 63, kind="causal")
    dense.weights[:, 1] = dense.weights[:, 0]
    found = in_one(HeadDivergence(), dense)
    assert found[0, 0, 1] == 0
    assert found.diagonal(dim1=1, dim2=2).abs().max() == 0
    assert found[0, 0, 2] > 0.01


def test_heads_without_a_common_key_differ_by_log_2():
    dense = dense_map(0, 1, 2, 3, 64)
    dense.weights[:, 0, :, 32:] = 0
    dense.weights[:, 1, :, :32] = 0
    dense.weights = dense.weights / dense.weights.sum(-1, keepdim=True)
    log_2 = math.log(2)
    close(in_one(HeadDivergence(), dense), torch.tensor([[[0, log_2], [log_2, 0]]], dtype=torch.float64))


def test_head_divergence_asks_for_all_heads_at_once():
    assert HeadDivergence().needs_all_heads


def test_heads_are_compared_a_few_at_a_time_with_the_same_result(monkeypatch):
    dense = dense_map(0, 2, 5, 7, 9)
    expected = in_one(HeadDivergence(), dense)
    monkeypatch.setattr("regard.stats.head_divergence.CELLS", 2 * 2 * 7 * 9)
    close(in_one(HeadDivergence(), dense), expected)
