"""The map in blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import Pooled
from regard.stats.pooled import _pieces
from stats.harness import close, dense_map, in_any_cut, in_one, observed


def dense_pooled(weights, size):
    rows = [weights[..., i : i + size, :] for i in range(0, weights.shape[-2], size)]
    blocks = [[row[..., j : j + size] for j in range(0, weights.shape[-1], size)] for row in rows]
    mean, largest = (
        torch.stack([torch.stack([how(b) for b in row], -1) for row in blocks], -2)
        for how in (lambda b: b.mean((-2, -1)), lambda b: b.amax((-2, -1)))
    )
    return mean, largest


@in_any_cut(tries=40, size=st.sampled_from([1, 2, 3, 7, 16, 64, 100]))
def test_pooled_matches_dense_in_any_tile_order(dense, seed, size):
    pooled = observed(Pooled(size, how="both"), dense, seed)
    mean, largest = dense_pooled(dense.weights, size)
    close(pooled.mean, mean)
    close(pooled.max, largest, atol=0)


@pytest.mark.parametrize("size", [1, 4, 63, 64, 65])
def test_the_last_blocks_are_averaged_over_their_own_cells(size):
    dense = dense_map(0, 1, 2, 65, 130)
    dense.weights = torch.ones_like(dense.weights)
    pooled = observed(Pooled(size), dense, size)
    close(pooled, torch.ones(1, 2, -(-65 // size), -(-130 // size), dtype=torch.float64))


@pytest.mark.parametrize("how", ["mean", "max"])
def test_one_of_both_is_the_same_as_both(how):
    dense = dense_map(0, 1, 2, 63, 65, kind="causal")
    assert torch.equal(in_one(Pooled(8, how=how), dense), getattr(in_one(Pooled(8, how="both"), dense), how))


@pytest.mark.parametrize(
    ("span", "pieces"),
    [
        (range(0, 192), [(0, 192, 0, 3)]),
        (range(64, 128), [(0, 64, 1, 1)]),
        (range(64, 150), [(0, 64, 1, 1), (64, 86, 2, 1)]),
        (range(60, 200), [(0, 4, 0, 1), (4, 132, 1, 2), (132, 140, 3, 1)]),
        (range(65, 66), [(0, 1, 1, 1)]),
    ],
)
def test_a_tile_that_is_aligned_with_the_blocks_stays_in_one_piece(span, pieces):
    found = [(p.cells.start, p.cells.stop, p.blocks.start, p.number) for p in _pieces(span, 64)]
    assert found == pieces


def test_blocks_of_no_cells_are_refused():
    with pytest.raises(StatisticError, match=r"^Pooled got size=0; it must be at least 1\.$"):
        Pooled(0)


def test_an_unknown_way_to_pool_is_refused():
    with pytest.raises(
        StatisticError, match=r"^Pooled got how='min'; it must be 'mean' or 'max' or 'both'\.$"
    ):
        Pooled(2, how="min")
