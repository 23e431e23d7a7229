"""Garbage is found wherever it is, by native kernels and by torch operations alike."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.folded import BUILDS, where_kernels_are
from regard.engine import native
from regard.engine.finite import SMALL, TAME, finite

GARBAGE = [torch.nan, -torch.nan, torch.inf, -torch.inf, 1e18 * 1.0001, -3e38]
SHAPES = [(1, 1, 1, 1), (2, 3, 5, 7), (1, 4, 16, 64), (2, 1, 33, 31), (1, 2, 1, 129)]


def laid_out(x: torch.Tensor, how: str) -> torch.Tensor:
    """The same numbers in another memory layout."""
    if how == "transposed":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if how == "part":
        wide = torch.full((*x.shape[:3], 3 * x.shape[3]), torch.nan)
        wide[..., : x.shape[3]] = x
        return wide[..., : x.shape[3]]
    if how == "columns":
        return x.transpose(2, 3).contiguous().transpose(2, 3)
    return x[:1].expand_as(x) if how == "expanded" else x


@pytest.mark.parametrize("how", ["packed", "transposed", "part", "columns", "expanded"])
@pytest.mark.parametrize("shape", SHAPES)
def test_garbage_is_found_at_every_place(shape, how):
    x = torch.randn(shape)
    assert finite(laid_out(x, how))
    for at in (0, -1, x[:1].numel() // 2):
        for bad in GARBAGE:
            spoiled = x.clone()
            spoiled[:1].view(-1)[at] = bad
            assert not finite(laid_out(spoiled, how))


@where_kernels_are
@pytest.mark.parametrize("capability", BUILDS)
@given(st.integers(1, 300), st.sampled_from([*GARBAGE, 1e18, -1e18, 0.0, 1e-45, 9.9e17]), st.data())
def test_the_kernels_find_what_torch_finds(capability, n, number, data):
    x = torch.linspace(-1, 1, n)
    x[data.draw(st.integers(0, n - 1))] = number
    low, high = x.aminmax()
    expected = -TAME < low.item() and high.item() < TAME
    loaded = native.load(capability=capability)
    assert loaded.within(x, TAME) == expected
    strided = torch.stack([x, torch.full_like(x, torch.nan)], -1)[:, 0].view(1, 1, n, 1)
    assert loaded.within(strided, TAME) == expected


@where_kernels_are
def test_a_limit_is_within_itself():
    x = torch.full((1, 1, 4, 4), -64.0)
    assert native.load().within(x, 64.0)
    assert not native.load().within(x - 2**-17, 64.0)


@pytest.mark.parametrize("shape", [(1, 1, 1, SMALL + 1), (2, 2), (3,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_large_and_other_tensors_are_read_by_torch(shape, dtype):
    x = torch.zeros(shape, dtype=dtype)
    assert finite(x)
    x.view(-1)[-1] = torch.nan
    assert not finite(x)


def test_empty_tensors_are_finite():
    assert finite(torch.zeros(1, 1, 0, 4), torch.zeros(0))
