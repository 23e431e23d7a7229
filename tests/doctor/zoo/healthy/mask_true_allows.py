"""A boolean mask, True where a pair may attend; empty rows give zeros."""

from __future__ import annotations

import torch


def attention(q, k, v, mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is None:
        return scores.softmax(-1) @ v
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0) @ v
