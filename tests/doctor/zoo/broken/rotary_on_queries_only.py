"""Keys are not turned."""

from __future__ import annotations

import torch

MISTAKE = "rotary-one-side"


def rotate(x):
    half = x.shape[-1] // 2
    turns = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(x.shape[-2])[:, None] * turns
    cos, sin = angles.cos().repeat(1, 2).to(x), angles.sin().repeat(1, 2).to(x)
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attention(q, k, v):
    q = rotate(q)
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
