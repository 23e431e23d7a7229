"""Angles laid out for neighbouring pairs, and a rotation of halves."""

from __future__ import annotations

import torch
from torch.nn import functional as F

MISTAKE = "rotary-mixed"


def rotate(x, start=0):
    half = x.shape[-1] // 2
    turns = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(start, start + x.shape[-2])[:, None] * turns
    angles = angles.repeat_interleave(2, -1)
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * angles.cos() + turned * angles.sin()


def attention(q, k, v):
    return F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
