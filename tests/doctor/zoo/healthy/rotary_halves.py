"""Rotary positions in halves, inside the function."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def rotate(x):
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def attention(q, k, v):
    return F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
