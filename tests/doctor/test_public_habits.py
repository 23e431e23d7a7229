"""Habits of public code that were once accused, refused or missed: each is read, its mistake named."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.doctor import examine
from regard.doctor.construct import construct


class Split(nn.Module):
    """Projections of any width under any names; subclasses say what becomes of q, k and v."""

    def __init__(self, model=48, inner=32, parts=4):
        super().__init__()
        self.parts = parts
        self.one, self.two, self.three = (nn.Linear(model, inner) for _ in range(3))
        self.last = nn.Linear(inner, model)

    def split(self, x):
        return (
            f(x).unflatten(-1, (self.parts, -1)).transpose(1, 2) for f in (self.one, self.two, self.three)
        )


class ByTokenWidth(Split):
    def forward(self, x):
        q, k, v = self.split(x)
        return self.last((q @ k.mT * x.shape[-1] ** -0.5).softmax(-1).matmul(v).transpose(1, 2).flatten(2))


def test_the_width_of_a_token_is_d_model_where_the_heads_are_narrower():
    assert examine(ByTokenWidth()).codes == ("scale-d-model",)


class ManyHeads(Split):
    softmax = -1

    def __init__(self):
        super().__init__(model=24, inner=40, parts=20)

    def forward(self, x):
        q, k, v = self.split(x)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(self.softmax)
        return self.last((weights @ v).transpose(1, 2).flatten(2))


def test_heads_are_counted_by_what_a_query_moves():
    found = examine(ManyHeads())
    assert found.verdict == "healthy", str(found)
    assert found.reading is not None
    assert found.reading["heads"] == 20


class MaskNeeded(Split):
    """Needs a (batch, q, k) mask in which True blocks, which None and ones are not."""

    fill = -1e9

    def __init__(self):
        super().__init__(model=32, inner=32)

    def forward(self, x, attn_mask):
        q, k, v = self.split(x)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores.masked_fill(attn_mask.unsqueeze(1).repeat(1, self.parts, 1, 1), self.fill)
        return self.last((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class MaskOfZero(MaskNeeded):
    fill = 0.0


def test_a_mask_that_must_be_passed_is_passed_in_a_form_that_allows_all():
    assert examine(MaskNeeded()).verdict == "healthy"
    assert examine(MaskOfZero()).codes == ("mask-weak",)


class ReturnsItsScores(Split):
    """Takes a cache that hooks fill in, and returns the scores of every pair last."""

    def forward(self, x, kv_cache=None):
        q, k, v = self.split(x)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return self.last((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), scores


def test_scores_that_are_returned_are_no_cache():
    found = examine(ReturnsItsScores())
    assert found.verdict == "healthy", str(found)


class Residual(nn.Module):
    """Convolutions over pixels, a gate that starts at zero, a residual and no output projection."""

    factor = 0.5

    def __init__(self, channels=32):
        super().__init__()
        self.f, self.g = nn.Conv2d(channels, channels // 8, 1), nn.Conv2d(channels, channels // 8, 1)
        self.h, self.gamma = nn.Conv2d(channels, channels, 1), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        f, g, h = (layer(x).flatten(2) for layer in (self.f, self.g, self.h))
        weights = (f.mT @ g * self.factor).softmax(-1)
        return self.gamma * (h @ weights.mT).view(x.shape) + x


class ResidualWithoutScale(Residual):
    factor = 1.0


@pytest.mark.long
def test_a_gate_of_zero_and_a_residual_hide_nothing():
    assert examine(Residual()).verdict == "healthy"
    assert examine(ResidualWithoutScale()).codes == ("missing-scale",)


class PartlyTurned(Split):
    """Rotary positions on a quarter of each head's width."""

    def __init__(self):
        super().__init__(model=64, inner=64)

    def forward(self, x):
        q, k, v = self.split(x)
        angles = torch.outer(torch.arange(x.shape[1]), 10000.0 ** -torch.tensor([0.0, 0.5]))
        cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))

        def turn(y):
            a, rest = y[..., :4], y[..., 4:]
            return torch.cat([a * cos + torch.cat([-a[..., 2:], a[..., :2]], -1) * sin, rest], -1)

        y = F.scaled_dot_product_attention(turn(q), self.key(turn, k), v)
        return self.last(y.transpose(1, 2).flatten(2))

    def key(self, turn, k):
        return turn(k)


class OneSidePartlyTurned(PartlyTurned):
    def key(self, turn, k):
        return k


def test_rotary_positions_on_a_part_of_the_width_are_read_and_must_be_on_both_sides():
    assert examine(PartlyTurned()).verdict == "healthy"
    assert examine(OneSidePartlyTurned()).codes == ("rotary-one-side",)


class Counted:
    def __init__(self, head_count, gizmo):
        self.made = 32 // head_count + gizmo


def test_an_argument_that_no_name_explains_is_a_size():
    assert construct(Counted).made == 8 + 32
