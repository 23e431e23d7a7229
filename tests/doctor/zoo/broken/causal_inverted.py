"""Causal attention whose mask is filled where it should be kept: queries see the future only."""

from __future__ import annotations

import torch

MISTAKE = "mask-inverted"


def causal_attention(q, k, v):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    weights = scores.masked_fill(allowed, -torch.inf).softmax(-1)
    return weights.nan_to_num(0.0) @ v
