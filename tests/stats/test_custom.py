"""Statistics of one's own."""

from __future__ import annotations

import re

import pytest
import torch

from regard.errors import StatisticError
from regard.stats import Custom
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed


@in_any_cut(tries=15)
def test_a_custom_sum_over_the_map_matches_dense_in_any_tile_order(dense, seed):
    powers = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    moments = Custom(lambda tile: (tile.weights[..., None] ** powers).sum((-3, -2)))
    found = observed(moments, dense, seed)
    expected = (dense.weights[..., None] ** powers).sum((-3, -2))
    if dense.allowed.any():
        close(found, expected)


@in_any_cut(tries=15)
def test_a_custom_maximum_over_columns_matches_dense_in_any_tile_order(dense, seed):
    found = observed(Custom(lambda tile: tile.weights.amax(-2), "columns", "max"), dense, seed)
    shown = dense.allowed.any(-2)
    close(found[shown], dense.weights.amax(-2)[shown])


@in_any_cut(tries=15)
def test_a_custom_sum_over_rows_matches_dense_in_any_tile_order(dense, seed):
    heavy = Custom(lambda tile: (tile.weights > 0.1).sum(-1), over="rows")
    found = observed(heavy, dense, seed)
    assert found.dtype == (torch.int64 if dense.allowed.any() else torch.float64)
    assert torch.equal(found, (dense.weights > 0.1).sum(-1).to(found.dtype))


def test_custom_may_read_scores_if_it_says_so():
    dense = dense_map(0, 1, 2, 5, 7)
    top = Custom(lambda tile: tile.scores.amax((-2, -1)), reduce="max", needs_scores=True)
    assert top.needs_scores
    assert not top.needs_log_weights
    assert torch.equal(in_one(top, dense), dense.scores.amax((-2, -1)))


@pytest.mark.parametrize(("over", "shape"), [("map", (1, 2)), ("rows", (1, 2, 5)), ("columns", (1, 2, 7))])
@pytest.mark.parametrize(("reduce", "value"), [("sum", 0.0), ("max", -torch.inf)])
def test_custom_of_a_map_with_nothing_in_it_is_empty(over, shape, reduce, value):
    found = fold(Custom(lambda tile: tile.weights, over, reduce), dense_map(0, 1, 2, 5, 7).frame, [])
    assert torch.equal(found, torch.full(shape, value, dtype=torch.float64))


def test_a_maximum_of_counts_begins_at_the_lowest_integer():
    dense = dense_map(0, 1, 1, 2, 2, kind="causal")
    tile = dense.tile(range(1), range(1), range(1), range(1))
    found = fold(Custom(lambda tile: tile.weights.sum(-1).long(), "rows", "max"), dense.frame, [tile])
    assert found.tolist() == [[[1, torch.iinfo(torch.int64).min]]]


@pytest.mark.parametrize(
    ("fn", "got"),
    [
        (lambda tile: tile.weights.sum(), "shape ()"),
        (lambda tile: tile.weights.sum(-2), "shape (1, 2, 7)"),
        (lambda tile: 1.0, "a float"),
    ],
)
def test_a_function_that_returns_another_shape_is_refused(fn, got):
    message = (
        f"the fn of Custom returned {got}; over='rows' wants a tensor of shape (1, 2, 5, ...) for this tile."
    )
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        in_one(Custom(fn, over="rows"), dense_map(0, 1, 2, 5, 7))


def test_a_function_whose_shape_depends_on_the_tile_is_refused():
    dense = dense_map(0, 1, 1, 1, 7)
    tiles = [dense.tile(range(1), range(1), range(1), cols) for cols in (range(3), range(3, 7))]
    message = (
        "the fn of Custom returned shape (1, 1, 4), and earlier tiles ask for (1, 1, 3); "
        "what fn adds to the dimensions of the tile must be the same for all."
    )
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        fold(Custom(lambda tile: tile.weights[..., 0, :]), dense.frame, tiles)


def test_an_unknown_fold_is_refused():
    with pytest.raises(StatisticError, match=r"^Custom got reduce='mean'; it must be 'sum' or 'max'\.$"):
        Custom(lambda tile: tile.weights, reduce="mean")
    with pytest.raises(
        StatisticError, match=r"^Custom got over='keys'; it must be 'map' or 'rows' or 'columns'\.$"
    ):
        Custom(lambda tile: tile.weights, over="keys")
