"""Causal attention with tril(diagonal=1): each query sees the token it must predict."""

from __future__ import annotations

import torch

MISTAKE = "sees-one-ahead"


def causal_attention(q, k, v):
    n = q.shape[-2]
    allowed = torch.ones(n, n, dtype=torch.bool).tril(diagonal=1)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1) @ v
