"""What heads agree on, and how far a student is from it."""

from __future__ import annotations

import re

import pytest
import torch

import regard
from regard.errors import MapError, ShapeError, StatisticError
from regard.stats import KL, HeadSum, Indexer, Scores
from regard.stats.head_sum import heaviest
from stats.harness import close, in_any_cut, observed


def reference(weights, scores, allowed):
    """KL of each row in dense form, and the probabilities compared."""
    mass = weights.sum(1)
    p = mass / mass.sum(-1, keepdim=True)
    student = scores.masked_fill(~allowed.any(1), -torch.inf).log_softmax(-1)
    kl = torch.special.xlogy(p, p).sum(-1) - (p * student).masked_fill(p == 0, 0).sum(-1)
    return torch.where(mass.sum(-1) > 0, kl, 0.0)


@in_any_cut()
def test_head_sum_lists_the_heaviest_keys_of_all_heads_together(dense, seed):
    k = min(3, dense.weights.shape[-1])
    found = observed(HeadSum(k), dense, seed)
    top = dense.weights.sum(1).topk(k)
    close(found.weight, top.values)
    listed = found.key >= 0
    summed = dense.weights.sum(1).gather(-1, found.key.clamp(min=0))
    close(found.weight, torch.where(listed, summed, 0.0))
    assert torch.equal(listed, top.values > 0)


def test_of_equal_sums_the_earlier_key_is_listed():
    x = torch.zeros(1, 2, 5, 4)
    assert regard.observe(x, x, x, stats=[HeadSum(3)]).head_sum.key.tolist() == [[[0, 1, 2]] * 5]


@in_any_cut()
def test_kl_matches_dense_in_any_tile_order(dense, seed):
    batch, _, q, k = dense.weights.shape
    scores = 3 * torch.randn(batch, q, k, dtype=torch.float64)
    close(observed(KL(scores), dense, seed), reference(dense.weights, scores, dense.allowed))


@pytest.mark.parametrize("mask", [None, regard.Causal(), regard.Dense(torch.rand(40, 600) < 0.02)])
def test_the_gradients_of_an_indexer_are_those_of_the_dense_formula(mask):
    generator = torch.Generator().manual_seed(0)

    def made(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    seen = regard.AttentionMap.of(made(2, 4, 40, 8), made(2, 2, 600, 8), mask)
    given = [
        made(2, 3, 40, 5).requires_grad_(),
        made(2, 600, 5).requires_grad_(),
        made(2, 3, 40).requires_grad_(),
    ]
    found = seen.kl(Indexer(*given))
    upstream = torch.linspace(1, 2, 80, dtype=torch.float64).view(2, 40)
    ours = torch.autograd.grad((found * upstream).sum(), given)
    q, k, weights = given
    scores = (weights[..., None] * torch.relu(q @ k[:, None].mT)).sum(1)
    allowed = torch.ones(40, 600, dtype=torch.bool) if mask is None else mask.dense(40, 600)
    wanted = reference(seen.dense(), scores, allowed.expand(2, 1, 40, 600))
    torch.testing.assert_close(found, wanted)
    for own, exact in zip(ours, torch.autograd.grad((wanted * upstream).sum(), given), strict=True):
        torch.testing.assert_close(own, exact.nan_to_num())


def test_a_student_that_copies_its_teacher_is_at_distance_zero_and_stays_there():
    x = torch.randn(1, 3, 20, 8, generator=torch.Generator().manual_seed(0))
    seen = regard.AttentionMap.of(x, x, regard.Causal())
    scores = seen.dense().sum(1).log().clamp(min=-1e4).requires_grad_()
    kl = seen.kl(Scores(scores))
    (grad,) = torch.autograd.grad(kl.sum(), scores)
    assert kl.abs().max().item() < 1e-5
    assert grad.abs().max().item() < 1e-6


def test_a_second_derivative_is_refused():
    x = torch.randn(1, 2, 4, 8)
    scores = torch.zeros(1, 4, 4, requires_grad=True)
    kl = regard.AttentionMap.of(x, x).kl(scores)
    with pytest.raises(MapError, match="no second derivative"):
        torch.autograd.grad(kl.sum(), scores, create_graph=True)


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 4, 5)])
def test_scores_for_another_map_are_refused(shape):
    x = torch.randn(2, 2, 4, 8)
    message = re.escape(f"the student's scores have shape {shape}; wanted (2 or 1, 4, 4).")
    with pytest.raises(ShapeError, match=f"^{message}$"):
        regard.observe(x, x, x, stats=[KL(torch.zeros(shape))])


def test_an_indexer_for_another_map_is_refused():
    x = torch.randn(2, 2, 4, 8)
    student = Indexer(torch.zeros(2, 1, 4, 5), torch.zeros(2, 5, 5), torch.zeros(2, 1, 4))
    with pytest.raises(ShapeError, match=re.escape("wanted (2, index_heads, 4, dim), (2, 4, dim)")):
        regard.AttentionMap.of(x, x).kl(student)


def test_more_shared_keys_than_there_are_is_refused():
    x = torch.randn(1, 1, 4, 8)
    with pytest.raises(StatisticError, match=r"use HeadSum\(4\) or fewer"):
        regard.observe(x, x, x, stats=[HeadSum(5)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 7, 30])
def test_the_heaviest_keys_are_those_of_a_stable_sort(k, dtype):
    """With many ties, zeros and the smallest numbers there are."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(0, 4, (3, 5, 30), generator=generator).to(dtype)
    weights[0] *= torch.finfo(dtype).smallest_normal / 8
    found = heaviest(weights, k, 100)
    values, order = weights.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(found[0], values[..., :k])
    assert torch.equal(found[1], order[..., :k] + 100)
