"""Dropout: how much is dropped, that it is the same in both directions, and that a seed repeats it."""

from __future__ import annotations

import math

import pytest
import torch

from engine.harness import differentiated, qkv
from regard import attention, explain_dispatch, sdpa
from regard.masks import Causal, Window


def weights(p, q=65, k=63, seed=0, mask=None):
    """The weights that dropout left, times 1 - p: values are unit vectors, so the output shows them."""
    torch.manual_seed(seed)
    zeros, values = torch.zeros(2, 3, q, 4), torch.eye(k).expand(2, 3, k, k)
    return attention(zeros, zeros.new_zeros(2, 3, k, 4), values, mask, dropout=p) * (1 - p)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9])
def test_a_fraction_p_of_the_weights_is_dropped_and_the_rest_grows(p):
    left = weights(p)
    torch.testing.assert_close(left[left != 0] * 63, torch.ones(int((left != 0).sum())))
    spread = math.sqrt(p * (1 - p) / left.numel())
    assert abs((left == 0).float().mean().item() - p) < 5 * spread


def test_the_mean_is_preserved():
    q, k, v = (torch.randn(4, 4, 100, 16) for _ in range(3))
    plain = sdpa(q, k, v)
    torch.manual_seed(0)
    mean = torch.stack([sdpa(q, k, v, dropout_p=0.5) for _ in range(100)]).mean(0)
    error = (mean - plain).pow(2).mean().sqrt()
    assert error < 0.2 * plain.std()


def test_rows_heads_and_batches_are_dropped_apart():
    left = weights(0.5, q=600, k=63).bool().flatten(0, 2)
    assert len(left.unique(dim=0)) == len(left)


def test_a_seed_repeats_it_and_another_does_not():
    assert torch.equal(weights(0.5, seed=1), weights(0.5, seed=1))
    assert not torch.equal(weights(0.5, seed=1), weights(0.5, seed=2))


def test_two_calls_in_a_row_differ():
    q, k, v = torch.randn(3, 1, 1, 65, 8).unbind()
    assert not torch.equal(attention(q, k, v, dropout=0.5), attention(q, k, v, dropout=0.5))


@pytest.mark.parametrize("mask", [None, Causal() & Window(30)], ids=str)
@pytest.mark.parametrize(("q", "k"), [(63, 65), (600, 1100)])
def test_gradients_go_through_the_weights_that_were_left(q, k, mask):
    """The oracle: one run with unit vectors as values shows what is dropped, another is differentiated."""
    leaves = qkv(q, k, batch=1, heads=2, kv_heads=1, v_dim=k, dtype=torch.float64)
    allowed = torch.ones(q, k, dtype=torch.bool) if mask is None else mask.dense(q, k)

    def ours(x):
        torch.manual_seed(7)
        return attention(**x, mask=mask, dropout=0.3)

    def softmax(x):
        s = x["q"] @ x["k"].mT / 4
        return s.masked_fill(~allowed, -torch.inf).softmax(-1)

    kept = (ours({**leaves, "v": torch.eye(k, dtype=torch.float64)[None, None]}) != 0).double() / 0.7
    got = differentiated(ours, leaves)
    want = differentiated(lambda x: (softmax(x) * kept) @ x["v"], leaves)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


def test_without_dropout_no_random_number_is_drawn():
    q, k, v = torch.randn(3, 1, 1, 65, 8).unbind()
    before = torch.get_rng_state()
    attention(q, k, v)
    explain_dispatch(q, k, v, dropout=0.5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_gradient_beside_large_scores_drops_what_the_output_dropped():
    """Heads with large scores are differentiated in float64."""
    q, k, v = torch.randn(3, 1, 1, 33, 8, generator=torch.Generator().manual_seed(1)).unbind()
    x = v.clone().requires_grad_()
    torch.manual_seed(5)
    out = attention(1000 * q, k, x, dropout=0.5)
    (grad,) = torch.autograd.grad(out.sum(), x)
    # The output is linear in the values, so it says what their gradient is.
    torch.testing.assert_close((grad * x).sum(), out.sum(), rtol=1e-4, atol=1e-4)
