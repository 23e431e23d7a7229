"""Einsum over (batch, length, heads, dim), the layout of flash-attention's functions."""

from __future__ import annotations

import torch


def attention(q, k, v, causal=False):
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if causal:
        n, m = scores.shape[-2:]
        scores = scores.masked_fill(~torch.ones(n, m, dtype=torch.bool).tril(m - n), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
