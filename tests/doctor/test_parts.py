"""The parts that the probes are made of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from regard.doctor import mistakes
from regard.doctor.influence import difference, influence, rows_changed
from regard.doctor.masks import MaskForm
from regard.doctor.probes.padding import holes
from regard.doctor.recipe import Recipe, compute, pattern, rotate
from regard.doctor.slips import SLIPS


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
    for slip in SLIPS:
        base = Recipe(rotary="halves") if "rotary" in slip.code else Recipe()
        heads = (4, 2) if slip.code == "gqa-order" else (4, 4)
        y = [x[0], x[1][..., : 4 * heads[1]], x[2][..., : 4 * heads[1]]]
        healthy = compute(*y, heads, causal, base)
        made = slip.made(base, causal)
        assert made is not None
        broken = compute(*y, heads, made[1], made[0])
        assert slip.code in mistakes()
        assert difference(broken, healthy) > 1e-4, slip.words


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


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ("b1qk", (2, 1, 3, 5)),
        ("bhqk", (2, 4, 3, 5)),
        ("1qk", (1, 3, 5)),
        ("bqk", (2, 3, 5)),
        ("qk", (3, 5)),
        ("b11k", (2, 1, 1, 5)),
        ("b1k", (2, 1, 5)),
        ("bk", (2, 5)),
        ("k", (5,)),
    ],
)
def test_a_mask_has_the_axes_that_its_form_says(axes, shape):
    allowed = torch.rand(2, 1, 3, 5) < 0.5
    built = MaskForm("mask", axes, "allowed").build(allowed, 4, torch.float32)
    assert built.shape == shape
    # Read from the back, a mask by key is the row of the last query.
    assert built.flatten()[-5:].tolist() == allowed[-1 if "b" in axes else 0, 0, -1].tolist()


@pytest.mark.parametrize(("meaning", "first"), [("lengths", True), ("ones", False), (None, False)])
def test_padding_is_at_both_ends_unless_lengths_are_passed(meaning, first):
    form = None if meaning is None else MaskForm("mask", "bk", meaning)
    keep = holes(SimpleNamespace(padding=form, length=5, batch=2))
    assert keep.tolist() == [[first, True, True, True, False]] * 2
