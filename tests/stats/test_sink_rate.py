"""How many heads have a sink."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import SinkRate
from stats.harness import dense_map, fold, in_any_cut, in_one, observed


@in_any_cut(key=st.integers(0, 69), threshold=st.sampled_from([0.0101, 0.1003, 0.3007]))
def test_sink_rate_matches_dense_in_any_tile_order(dense, seed, key, threshold):
    key = min(key, dense.frame.k - 1)
    total, seen = dense.weights[..., key].sum(-1), dense.allowed[..., key].sum(-1)
    sinks = total > threshold * seen
    expected = (sinks & (seen > 0)).double().mean(-1)
    assert torch.equal(observed(SinkRate(key, threshold), dense, seed), expected)


def test_half_of_the_heads_may_have_a_sink():
    dense = dense_map(0, 1, 2, 63, 65)
    dense.weights[0, 0] = 1 / 65
    dense.weights[0, 1] = torch.eye(65, dtype=torch.float64)[0]
    assert in_one(SinkRate(), dense).tolist() == [0.5]


def test_a_map_without_anything_in_it_has_no_sinks():
    assert fold(SinkRate(), dense_map(0, 2, 1, 3, 3).frame, []).tolist() == [0.0, 0.0]


def test_a_key_that_is_not_there_is_refused():
    dense = dense_map(0, 1, 1, 3, 3)
    with pytest.raises(StatisticError, match=r"^SinkRate got key=3, and there are 3 keys; count from 0\.$"):
        in_one(SinkRate(key=3), dense)
    with pytest.raises(StatisticError, match=re.escape("SinkRate got key=-1; it must be at least 0.")):
        SinkRate(key=-1)
