"""How weights and scores are distributed."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch

from regard.errors import StatisticError
from regard.stats import Histogram
from stats.harness import dense_map, in_any_cut, in_one, observed


def dense_counts(values, allowed, edges):
    """Count bin by bin; the outer bins are open."""
    open_edges = [-torch.inf, *edges, torch.inf]
    bins = [allowed & (values >= a) & (values < b) for a, b in pairwise(open_edges)]
    return torch.stack([chosen.sum((-2, -1)) for chosen in bins], -1)


@in_any_cut()
def test_histogram_of_weights_matches_dense_in_any_tile_order(dense, seed):
    found = observed(Histogram(), dense, seed)
    edges = found.edges.tolist()
    assert (edges[0], edges[-1]) == (0.0, 1.0)
    assert torch.equal(found.counts, dense_counts(dense.weights, dense.allowed, edges[1:-1]))


@in_any_cut()
def test_histogram_of_scores_matches_dense_in_any_tile_order(dense, seed):
    edges = (-3.0, 0.0, 0.5, 9.0)
    found = observed(Histogram(of="score", edges=edges), dense, seed)
    assert found.edges.tolist() == [-torch.inf, *edges, torch.inf]
    assert torch.equal(found.counts, dense_counts(dense.scores, dense.allowed, edges))


@pytest.mark.parametrize("of", ["weight", "score"])
def test_counts_add_up_to_the_pairs_that_may_attend(of):
    dense = dense_map(0, 2, 3, 63, 65, kind="causal")
    dense.scores[..., 0] = 1e6
    dense.weights[..., 1] = 0
    found = observed(Histogram(of=of), dense, 0)
    assert torch.equal(found.counts.sum(-1), dense.allowed.sum((-2, -1)))


def test_weights_of_zero_and_one_have_bins():
    dense = dense_map(0, 1, 1, 1, 3)
    dense.weights = torch.tensor([[[[0.0, 1.0, 0.25]]]], dtype=torch.float64)
    assert in_one(Histogram(edges=(0.25, 0.5)), dense).counts.tolist() == [[[1, 1, 1]]]


def test_only_a_histogram_of_scores_needs_scores():
    assert Histogram(of="score").needs_scores
    assert not Histogram(of="weight").needs_scores


@pytest.mark.parametrize("edges", [(0.5, 0.2), (0.5, 0.5), (0.0, 0.5), (0.5, 1.0)])
def test_edges_that_do_not_rise_between_the_outer_ones_are_refused(edges):
    message = (
        f"Histogram got edges={edges}; borders between bins of a weight must rise, all above 0 and below 1, "
        "which need not be given."
    )
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        Histogram(edges=edges)
