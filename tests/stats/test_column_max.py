"""The largest weight of each key."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.stats import ColumnMax
from stats.harness import close, in_any_cut, observed


@in_any_cut()
def test_column_max_matches_dense_in_any_tile_order(dense, seed):
    close(observed(ColumnMax(), dense, seed), dense.weights.amax(-2))


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_heads_that_share_a_key_head_share_its_maximum(backend):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 6, 150, 16, generator=generator)
    k = torch.randn(2, 2, 700, 16, generator=generator)
    seen = regard.observe(q, k, k, regard.Causal(), stats=[ColumnMax(per_key_head=True)], backend=backend)
    tops = seen.map.dense().amax(-2)
    torch.testing.assert_close(seen.column_max, tops.view(2, 2, 3, 700).amax(2))


def test_no_maximum_is_above_one_at_large_scores():
    x = 300 * torch.eye(8)[None, None]
    tops = regard.observe(x, x, x, stats=[ColumnMax()]).column_max
    assert torch.equal(tops, torch.ones(1, 1, 8))
