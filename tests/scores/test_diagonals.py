"""Sums along diagonals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from regard.errors import ShapeError
from regard.scores import diagonal_sums


@given(q=st.integers(1, 65), k=st.integers(1, 65))
def test_entry_d_sums_the_cells_whose_key_is_d_minus_q_plus_1_after_the_query(q, k):
    tile = torch.arange(q * k, dtype=torch.float64).view(q, k)
    sums = diagonal_sums(tile)
    assert sums.shape == (q + k - 1,)
    assert sums.tolist() == [tile.diagonal(d - (q - 1)).sum().item() for d in range(q + k - 1)]


def test_leading_dimensions_are_kept_apart():
    tile = torch.randn(2, 3, 63, 65, dtype=torch.float64)
    torch.testing.assert_close(diagonal_sums(tile)[1, 2], diagonal_sums(tile[1, 2]))


def test_a_transposed_tile_is_read_by_its_indices():
    tile = torch.randn(63, 5, dtype=torch.float64)
    torch.testing.assert_close(diagonal_sums(tile.T), diagonal_sums(tile.T.contiguous()))
    torch.testing.assert_close(diagonal_sums(tile.T), diagonal_sums(tile).flip(0))


def test_gradients_of_diagonal_sums_are_right():
    assert gradcheck(diagonal_sums, torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0)])
def test_an_empty_tile_has_no_diagonals(shape):
    with pytest.raises(ShapeError, match=r"tile has shape .*; wanted \(\.\.\., q, k\), both at least 1"):
        diagonal_sums(torch.ones(shape))
