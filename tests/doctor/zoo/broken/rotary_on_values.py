"""Rotary positions turn the values as well."""

from __future__ import annotations

import torch
from torch.nn import functional as F

MISTAKE = "rotary-on-values"


def rotate(x, start=0):
    half = x.shape[-1] // 2
    turns = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(start, start + x.shape[-2])[:, None] * turns
    angles = torch.cat([angles, angles], -1)
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * angles.cos() + turned * angles.sin()


def attention(q, k, v):
    q, k, v = rotate(q), rotate(k), rotate(v)
    return F.scaled_dot_product_attention(q, k, v)
