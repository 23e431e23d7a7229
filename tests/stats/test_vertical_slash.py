"""The heaviest columns and diagonals."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import VerticalSlash
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed


@in_any_cut(k=st.integers(1, 70))
def test_vertical_slash_matches_dense_in_any_tile_order(dense, seed, k):
    q, keys = dense.weights.shape[2:]
    k = min(k, keys)
    lines = observed(VerticalSlash(k), dense, seed)
    total = dense.weights.sum((-2, -1)).clamp(min=1e-300)[..., None]
    columns = dense.weights.sum(-2) / total
    slashes = {d: (dense.weights * (dense.distance == d)).sum((-2, -1)) for d in range(1 - q, keys)}
    diagonals = torch.stack(list(slashes.values()), -1) / total
    close(lines.key_share, columns.topk(k).values)
    close(lines.key_share, columns.gather(-1, lines.keys))
    close(lines.distance_share, diagonals.topk(k).values)
    close(lines.distance_share, diagonals.gather(-1, lines.distances + q - 1))


def test_of_equal_lines_the_earlier_key_and_the_shorter_distance_come_first():
    dense = dense_map(0, 1, 1, 5, 5)
    dense.weights = torch.zeros_like(dense.weights)
    lines = in_one(VerticalSlash(5), dense)
    assert lines.keys.tolist() == [[[0, 1, 2, 3, 4]]]
    assert lines.distances.tolist() == [[[0, 1, -1, 2, -2]]]


def test_one_column_can_hold_everything():
    dense = dense_map(0, 1, 1, 63, 65)
    dense.weights = torch.zeros_like(dense.weights)
    dense.weights[..., 7] = 1
    lines = in_one(VerticalSlash(1), dense)
    assert (lines.keys.item(), lines.key_share.item()) == (7, 1.0)


def test_an_empty_map_has_lines_without_weight():
    lines = fold(VerticalSlash(2), dense_map(0, 1, 1, 3, 3).frame, [])
    assert lines.key_share.tolist() == [[[0.0, 0.0]]]
    assert lines.distance_share.tolist() == [[[0.0, 0.0]]]


def test_more_columns_than_there_are_is_refused():
    message = "VerticalSlash(k=4) asks for 4 columns, and there are 3; use VerticalSlash(3) or fewer."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        fold(VerticalSlash(4), dense_map(0, 1, 1, 3, 3).frame, [])
