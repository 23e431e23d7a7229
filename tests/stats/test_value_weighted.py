"""Attention weighed by the size of values."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from oracle import dense_attention
from regard import Causal, Padding, observe
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


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("mask", [None, Causal(), Padding(torch.arange(5) < 4)], ids=str)
def test_values_learn_from_how_much_queries_take_in(mask, group):
    generator = torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn(1, h, 5, 3, generator=generator, dtype=torch.float64) for h in (2, 2 // group, 2 // group)
    )
    own, dense = ([x.clone().requires_grad_() for x in (q, k, v)] for _ in range(2))
    q, k, v = own
    seen = observe(q, k, v, mask, stats=[ValueWeighted()], differentiable=True)
    seen.value_weighted.square().sum().backward()
    q, k, v = (x.repeat_interleave(2 // x.shape[1], 1) for x in dense)
    weights = dense_attention(q, k, v, None if mask is None else mask.dense(5)).weights
    (weights @ v.norm(dim=-1, keepdim=True)).square().sum().backward()
    for got, wanted in zip(own, dense, strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf])
def test_garbage_behind_the_mask_is_in_no_gradient_of_what_queries_take_in(garbage):
    q, k, v = torch.randn(3, 1, 2, 5, 3, generator=torch.Generator().manual_seed(3)).unbind()
    v[:, :, 4] = garbage
    v.requires_grad_()
    seen = observe(q, k, v, Padding(torch.arange(5) < 4), stats=[ValueWeighted()], differentiable=True)
    (seen.value_weighted.sum() + seen.out.sum()).backward()
    assert v.grad is not None
    assert v.grad.isfinite().all()
    assert not v.grad[:, :, 4].any()
    assert v.grad[:, :, :4].all()
