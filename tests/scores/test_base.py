"""The dot product, and what every score function shares."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck

from regard.errors import DeviceError, ScoreError, ShapeError
from regard.scores import Additive, Concat, DotProduct, General, Score


def make_scores(dim: int = 4, hidden: int = 3) -> list[Score]:
    """One of each kind, all for queries and keys of the same dim."""
    return [
        DotProduct(),
        General(torch.randn(dim, dim)),
        Additive(torch.randn(dim, hidden), torch.randn(dim, hidden), torch.randn(hidden)),
        Concat(torch.randn(2 * dim, hidden), torch.randn(hidden)),
    ]


def name_of(score: Score) -> str:
    return type(score).__name__


@pytest.mark.parametrize(("q_length", "k_length"), [(1, 1), (63, 65), (65, 1)])
def test_dot_product_is_the_sum_of_products(q_length, k_length):
    q = torch.randn(2, 3, q_length, 5, dtype=torch.float64)
    k = torch.randn(2, 3, k_length, 5, dtype=torch.float64)
    expected = (q[:, :, :, None, :] * k[:, :, None, :, :]).sum(-1)
    torch.testing.assert_close(DotProduct().tile(*DotProduct().prepare(q, k)), expected)


def test_dot_product_gradients_are_right():
    q = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(DotProduct().tile, (q, k))


def test_only_the_dot_product_is_scaled_by_default():
    dot, *others = make_scores()
    assert dot.default_scale(64) == 1 / math.sqrt(64) == 0.125
    assert [score.default_scale(64) for score in others] == [1.0, 1.0, 1.0]


def test_scores_that_are_dot_products_after_prepare_say_so():
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    assert [score.is_dot for score in make_scores()] == [True, True, False, False]
    for score in make_scores()[:2]:
        q_ready, k_ready = score.prepare(q, k)
        torch.testing.assert_close(score.tile(q_ready, k_ready), q_ready @ k_ready.mT)


@pytest.mark.parametrize("score", make_scores(), ids=name_of)
def test_a_tile_scores_stacked_query_heads_like_the_engine_stacks_them(score):
    batch, kv_heads, group, length, dim = 2, 3, 2, 5, 4
    q, k = torch.randn(batch, kv_heads * group, length, dim), torch.randn(batch, kv_heads, 7, dim)
    q_ready, k_ready = score.prepare(q, k)
    width = q_ready.shape[-1]
    stacked = score.tile(
        q_ready.reshape(batch * kv_heads, group * length, width),
        k_ready.reshape(batch * kv_heads, 7, width),
        *score.parameters(),
    )
    apart = score.tile(q_ready, k_ready.repeat_interleave(group, dim=1), *score.parameters())
    torch.testing.assert_close(stacked.view(apart.shape), apart)


@pytest.mark.parametrize("score", make_scores(), ids=name_of)
def test_a_tile_is_a_slice_of_the_whole(score):
    q, k = score.prepare(torch.randn(1, 1, 63, 4), torch.randn(1, 1, 65, 4))
    whole = score.tile(q, k, *score.parameters())
    part = score.tile(q[..., 10:21, :], k[..., 64:, :], *score.parameters())
    torch.testing.assert_close(part, whole[..., 10:21, 64:])


@pytest.mark.parametrize("score", make_scores(), ids=name_of)
def test_a_score_accepts_what_it_was_made_for(score):
    score.check(torch.ones(2, 6, 63, 4), torch.ones(2, 3, 65, 4))


@pytest.mark.parametrize("score", make_scores(), ids=name_of)
def test_a_score_refuses_a_tensor_of_another_rank(score):
    with pytest.raises(ShapeError, match=r"k has shape \(2, 3, 4\); wanted \(batch, heads, length, dim\)\."):
        score.check(torch.ones(1, 2, 3, 4), torch.ones(2, 3, 4))


@pytest.mark.parametrize("kv_heads", [5, 0])
@pytest.mark.parametrize("score", make_scores(), ids=name_of)
def test_a_score_refuses_heads_that_do_not_group(score, kv_heads):
    message = f"q has 12 heads and k has {kv_heads}; q heads must be a multiple of k heads"
    with pytest.raises(ShapeError, match=message):
        score.check(torch.ones(1, 12, 3, 4), torch.ones(1, kv_heads, 3, 4))


def test_dot_product_refuses_unequal_dims_and_names_general():
    message = r"q has dim 64 and k has dim 32; a dot product needs equal dims\. .*General\(weight\)"
    with pytest.raises(ShapeError, match=message):
        DotProduct().check(torch.ones(1, 1, 3, 64), torch.ones(1, 1, 3, 32))


@pytest.mark.parametrize("score", make_scores()[1:], ids=name_of)
def test_a_score_refuses_parameters_on_another_device(score):
    q = torch.ones(1, 1, 3, 4, device="meta")
    with pytest.raises(DeviceError, match=rf"of {name_of(score)} is on cpu and q is on meta\. Move one"):
        score.check(q, q)


def test_dot_product_survives_json():
    assert DotProduct().to_json() == {"type": "DotProduct"}
    assert Score.from_json({"type": "DotProduct"}) == DotProduct()


@pytest.mark.parametrize("score", make_scores()[1:], ids=name_of)
def test_a_learned_score_has_no_json_form(score):
    message = f"{name_of(score)} has no JSON form: its parameters live with the model"
    with pytest.raises(ScoreError, match=message):
        score.to_json()


def test_reading_an_unknown_score_names_it():
    with pytest.raises(ScoreError, match="no score is called 'Cosine'; only 'DotProduct' can be read"):
        Score.from_json({"type": "Cosine"})


@pytest.mark.parametrize("score", make_scores()[1:], ids=name_of)
def test_a_score_prints_shapes_and_not_tensors(score):
    assert "tensor(" not in repr(score)
    assert repr(score).startswith(f"{name_of(score)}(")
    assert "(4, " in repr(score) or "(8, " in repr(score)
