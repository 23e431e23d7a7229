"""The parts that the probes are made of."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.doctor import mistakes
from regard.doctor.fit import MISTAKES
from regard.doctor.influence import difference, influence, rows_changed
from regard.doctor.recipe import Recipe, compute, pattern, rotate
from regard.doctor.weights import projections


@pytest.mark.parametrize("n", [1, 2, 63])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
def test_the_healthy_recipe_is_pytorchs_attention(n, heads):
    q, k, v = (torch.randn(2, h, n, 8, dtype=torch.float64) for h in (heads[0], heads[1], heads[1]))
    flat = [x.transpose(1, 2).reshape(2, n, -1) for x in (q, k, v)]
    ours = compute(*flat, heads, pattern("causal", n, n), Recipe())
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert torch.allclose(ours, theirs.transpose(1, 2).reshape(2, n, -1))


@pytest.mark.parametrize("how", ["halves", "interleaved"])
def test_rotary_scores_depend_on_the_distance_alone(how):
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    recipe = Recipe(rotary=how)
    scores = [
        float((rotate(q, p + 3, recipe) * rotate(k, p, recipe)).sum()) for p in torch.arange(0, 65)[:, None]
    ]
    assert max(scores) - min(scores) < 1e-9


def test_mixed_rotary_scores_do_not():
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    recipe = Recipe(rotary="mixed")
    scores = [
        float((rotate(q, p + 3, recipe) * rotate(k, p, recipe)).sum()) for p in torch.arange(0, 65)[:, None]
    ]
    assert max(scores) - min(scores) > 1e-2


def test_every_recipe_of_a_mistake_changes_the_output():
    x = torch.randn(3, 2, 6, 16)
    causal = pattern("causal", 6, 6)
    for code, words, change in MISTAKES:
        settings = dict(change)
        allowed = pattern(settings.pop("pattern"), 6, 6) if "pattern" in settings else causal
        base = Recipe(rotary="halves") if "rotary" in code else Recipe()
        heads = (4, 2) if code == "gqa-order" else (4, 4)
        y = [x[0], x[1][..., : 4 * heads[1]], x[2][..., : 4 * heads[1]]]
        healthy = compute(*y, heads, causal, base)
        broken = compute(*y, heads, allowed, Recipe(**{"rotary": base.rotary, **settings}))
        assert code in mistakes()
        assert code == "missing-output-projection" or difference(broken, healthy) > 1e-4, words


def test_patterns_are_what_their_names_say():
    assert pattern("strict", 3, 3).int().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert pattern("ahead", 3, 3).int().tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert pattern("inverted", 3, 3).int().tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert pattern("first", 2, 3).int().tolist() == [[1, 0, 0], [1, 1, 0]]


def test_nan_that_appears_is_a_change_and_nan_that_stays_is_none():
    nan = torch.tensor([[[torch.nan], [1.0]]])
    assert rows_changed(nan, nan).tolist() == [False, False]
    assert rows_changed(torch.ones(1, 2, 1), nan).tolist() == [True, False]
    assert difference(torch.ones(1, 2, 1), nan) == float("inf")


def test_influence_reads_a_mask_off_a_function():
    allowed = torch.rand(5, 5) < 0.5
    seen = influence(lambda x: allowed.float() @ x, torch.ones(1, 5, 2), _plus_one, 5)
    assert torch.equal(seen, allowed)


def _plus_one(x, j):
    x = x.clone()
    x[:, j] += 1
    return x


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)


def test_fused_weights_are_read_in_both_orders():
    module = Fused()
    split, by_head = projections(module, heads=2)
    rows = module.qkv.weight.T
    assert torch.equal(split.q[0], rows[:, :8])
    assert torch.equal(by_head.q[0], torch.cat([rows[:, 0:4], rows[:, 12:16]], -1))
    assert torch.equal(by_head.v[1], torch.cat([module.qkv.bias[8:12], module.qkv.bias[20:24]]))


def test_a_module_without_known_names_is_not_read():
    assert projections(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) == []
