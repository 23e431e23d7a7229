"""Attention weighed by the size of values."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.errors import StatisticError
from regard.stats import ValueWeighted
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed


@in_any_cut()
def test_value_weighted_matches_dense_in_any_tile_order(dense, seed):
    expected = (dense.weights[..., None] * dense.values[:, :, None]).norm(dim=-1).sum(-1)
    close(observed(ValueWeighted(), dense, seed), expected)


def test_query_heads_share_the_values_of_their_group():
    dense = dense_map(0, 2, 4, 5, 63)
    dense.values = dense.values[:, :2]
    norms = torch.stack([dense.values[:, head // 2].norm(dim=-1) for head in range(4)], 1)
    close(in_one(ValueWeighted(), dense), (dense.weights * norms[:, :, None]).sum(-1))


def test_garbage_behind_the_mask_does_not_leak():
    dense = dense_map(0, 1, 1, 5, 5, kind="causal")
    expected = in_one(ValueWeighted(), dense)
    dense.values[0, 0, 3] = torch.nan
    dense.values[0, 0, 4] = torch.inf
    got = observed(ValueWeighted(), dense, 1)
    close(got[..., :3], expected[..., :3])
    assert got[..., 3:].isnan().all()


def test_value_weighted_without_values_is_refused():
    frame = dataclasses.replace(dense_map(0, 1, 1, 1, 1).frame, values=None)
    message = r"^ValueWeighted weighs values, and this map has none; give v, or leave ValueWeighted out\.$"
    with pytest.raises(StatisticError, match=message):
        fold(ValueWeighted(), frame, [])
