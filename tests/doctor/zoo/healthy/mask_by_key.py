"""A padding mask by key, True where there is a token."""

from __future__ import annotations

import torch


def attention(q, k, v, mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        assert mask.dim() == 2
        assert mask.dtype == torch.bool
        scores = scores.masked_fill(~mask[:, None, None, :], -1e9)
    return scores.softmax(-1) @ v
