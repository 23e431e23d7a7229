"""Attention that is no softmax of q·k, cosines, and masks of forms that only seem to fit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.doctor import examine


class Fused(nn.Module):
    """Projections of three parts; subclasses say what becomes of q, k and v."""

    def __init__(self, dim=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj((self.weights(q, k) @ v).transpose(1, 2).flatten(2))


class Cosines(Fused):
    def __init__(self, dim=32, num_heads=4):
        super().__init__(dim, num_heads)
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones(num_heads, 1, 1)))

    def weights(self, q, k):
        cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
        return (cosines * self.logit_scale.clamp(max=math.log(100)).exp()).softmax(-1)


class CosinesAlone(Fused):
    def weights(self, q, k):
        return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1)


def test_cosines_with_a_learnt_factor_are_a_healthy_form():
    found = examine(Cosines())
    assert found.verdict == "healthy", str(found)
    assert any("its scores are cosines" in note for note in found.notes)


def test_cosines_without_a_factor_are_normalised_inside():
    found = examine(CosinesAlone())
    assert found.codes == ("normalised-inside",)
    assert "softmax of 1 times cosines, which lie between -1 and 1" in found.findings[0].evidence


class Capped(Fused):
    def __init__(self, dim=32, num_heads=4):
        super().__init__(dim, num_heads)
        self.softcap = 3.0

    def weights(self, q, k):
        return (((q @ k.mT * q.shape[-1] ** -0.5) / self.softcap).tanh() * self.softcap).softmax(-1)


class CappedUnscaled(Capped):
    def weights(self, q, k):
        return (((q @ k.mT) / self.softcap).tanh() * self.softcap).softmax(-1)


def test_capped_scores_are_healthy_and_their_scale_is_probed():
    found = examine(Capped())
    assert found.verdict == "healthy", str(found)
    assert examine(CappedUnscaled()).codes == ("missing-scale",)


def test_heads_may_come_back_side_by_side():
    def length_first(query, key, value, attention_mask):
        scores = torch.einsum("ibhd,jbhd->bhij", query, key) / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(attention_mask, -10000.0).softmax(-1)
        return torch.einsum("bhij,jbhd->ibhd", weights, value).flatten(2)

    found = examine(length_first)
    assert found.verdict == "healthy", str(found)
    assert found.reading is not None
    assert found.reading["layout"] == "nbhd"


class AttentionFreeSimple(nn.Module):
    def __init__(self, d_model=32):
        super().__init__()
        self.fc_q, self.fc_k, self.fc_v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        mixed = (self.fc_k(x).softmax(1) * self.fc_v(x)).sum(1, keepdim=True)
        return self.fc_q(x).sigmoid() * mixed


class AttentionFreeLocal(nn.Module):
    """With a bias of positions, a mask, a weight of bools, and keyword arguments alone; length first."""

    def __init__(self, d_model=32, seq_len=64):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))
        self.bias = nn.Parameter(torch.zeros(seq_len, seq_len))
        self.local = nn.Parameter(torch.ones(seq_len, seq_len).tril(7).bool(), requires_grad=False)

    def forward(self, *, query, key, value, mask=None):
        n = len(query)
        query, key, value = self.query(query), self.key(key), self.value(value)
        bias = (self.bias[:n, :n] * self.local[:n, :n])[..., None, None].expand(-1, -1, *key.shape[1:])
        if mask is not None:
            bias = bias.masked_fill(~mask.view(n, n, 1, 1), -torch.inf)
        scores, places = (key - key.amax(0, keepdim=True)).exp(), (bias - bias.amax(1, keepdim=True)).exp()
        mixed = torch.einsum("ijbd,jbd->ibd", places, scores * value)
        return self.output(query.sigmoid() * mixed / torch.einsum("ijbd,jbd->ibd", places, scores))


def attention_free(q, k, v):
    return q.sigmoid() * (k.softmax(1) * v).sum(1, keepdim=True)


@pytest.mark.parametrize("form", [AttentionFreeSimple, AttentionFreeLocal, attention_free])
def test_attention_free_transformers_are_not_accused_of_a_scale(form):
    found = examine(form)
    assert (found.codes, found.verdict) == ((), "not examined"), str(found)


def times_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return (scores if mask is None else scores * mask).softmax(-1) @ v


def test_a_mask_that_scores_are_multiplied_with_is_weak():
    assert examine(times_mask).codes == ("mask-weak",)


class MaskOfMinusTen(Fused):
    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + (1.0 - mask[:, None, None]) * -10
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_mask_that_only_damps_is_weak_although_infinities_go_through_it():
    found = examine(MaskOfMinusTen())
    assert found.codes == ("mask-weak",), str(found)
    assert "damps and does not forbid" in found.findings[0].evidence


def squashed_mask(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return (scores if mask is None else (scores * mask.float()).tanh() * 3).softmax(-1) @ v


def test_a_mask_that_no_form_explains_gets_no_clean_bill():
    assert examine(squashed_mask).verdict != "healthy"


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        (lambda s: s.exp(), "no-softmax"),
        (lambda s: s / s.sum(-1, keepdim=True), "no-softmax"),
        (lambda s: (s / 0 - s / 0).softmax(-1), "nan-output"),
    ],
)
def test_what_stands_in_place_of_softmax_is_named(weights, code):
    found = examine(lambda q, k, v: weights(q @ k.mT / math.sqrt(q.shape[-1])) @ v)
    assert found.codes == (code,)


def test_a_class_is_made_with_small_sizes():
    assert examine(Cosines).verdict == "healthy"


class Turned(Fused):
    """Rotary positions of any base, in the order of Llama."""

    def __init__(self, base, dim=32, num_heads=4):
        super().__init__(dim, num_heads)
        self.base = base

    def turned(self, x):
        half = x.shape[-1] // 2
        angles = torch.arange(x.shape[2])[:, None] * self.base ** (-torch.arange(half) / half)
        first, second = x.split(half, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def weights(self, q, k):
        q, k = self.turned(q), self.turned(k)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1)


@pytest.mark.parametrize("base", [1e4, 5e5, 1e6], ids=["llama 2", "llama 3", "qwen"])
def test_the_bases_of_rotary_positions_in_use_are_healthy_forms(base):
    found = examine(Turned(base))
    assert found.verdict == "healthy", str(found)
