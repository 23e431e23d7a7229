"""What keys receive, window by window."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

import regard
from regard.errors import StatisticError
from regard.stats import ColumnMass, WindowedMass
from stats.harness import close, in_any_cut, observed


@in_any_cut(queries=st.integers(1, 80), cumulative=st.booleans())
def test_windowed_mass_is_the_mass_of_each_window(dense, seed, queries, cumulative):
    windows = torch.stack([rows.sum(-2) for rows in dense.weights.split(queries, -2)], 2)
    wanted = windows.cumsum(2) if cumulative else windows
    close(observed(WindowedMass(queries, cumulative), dense, seed), wanted)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_a_call_reads_each_window_by_itself_and_finds_the_same(backend):
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 4, 260, 16, generator=generator) for _ in range(2))
    seen = regard.observe(q, k, k, regard.Causal(), stats=[WindowedMass(100)], backend=backend)
    windows = [rows.sum(-2) for rows in seen.map.dense().split(100, -2)]
    torch.testing.assert_close(seen.windowed_mass, torch.stack(windows, 2))


def test_the_last_checkpoint_is_the_mass_of_all_queries():
    x = torch.randn(1, 2, 50, 8, generator=torch.Generator().manual_seed(0))
    stats = [WindowedMass(16, cumulative=True), ColumnMass()]
    seen = regard.observe(x, x, x, regard.Causal(), stats=stats)
    torch.testing.assert_close(seen.windowed_mass[:, :, -1], seen.column_mass)


@pytest.mark.parametrize("queries", [0, -8, True])
def test_windows_that_are_no_number_of_queries_are_refused(queries):
    with pytest.raises(StatisticError, match=r"^WindowedMass got queries="):
        WindowedMass(queries)
