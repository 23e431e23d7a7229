"""Adds up the values key by key in the precision of the input."""

from __future__ import annotations

import torch

MISTAKE = "half-accumulation"


def attention(q, k, v):
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    out = torch.zeros_like(q)
    for j in range(k.shape[-2]):
        out = out + weights[..., j : j + 1] * v[..., j : j + 1, :]
    return out
