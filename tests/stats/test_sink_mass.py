"""What the first keys take."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import SinkMass
from stats.harness import close, dense_map, in_any_cut, in_one, observed


@in_any_cut(first=st.integers(1, 70))
def test_sink_mass_matches_dense_in_any_tile_order(dense, seed, first):
    close(observed(SinkMass(first), dense, seed), dense.weights[..., :first].sum(-1))


@pytest.mark.parametrize("first", [1, 4, 63, 65])
def test_the_columns_of_sink_mass_say_the_same_as_its_tiles(first):
    dense = dense_map(0, 2, 3, 5, 63)
    columns = SinkMass(first).columns(dense.frame)
    close((dense.weights @ columns).squeeze(-1), in_one(SinkMass(first), dense))


def test_sink_mass_of_no_keys_is_refused():
    with pytest.raises(StatisticError, match=r"^SinkMass got first=0; it must be at least 1\.$"):
        SinkMass(0)
