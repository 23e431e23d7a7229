"""A boolean mask, True where a pair is blocked, filled with the least number there is."""

from __future__ import annotations

import torch


def attention(q, k, v, attn_mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v
