"""Takes a mask and computes without it."""

from __future__ import annotations

import torch

MISTAKE = "mask-ignored"


def attention(q, k, v, attn_mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if attn_mask is not None:
        scores.masked_fill(~attn_mask.bool(), -torch.inf)
    return scores.softmax(-1) @ v
