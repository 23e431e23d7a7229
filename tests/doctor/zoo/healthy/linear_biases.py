"""ALiBi: scores fall with the distance, by a slope for each head."""

from __future__ import annotations

import torch


def attention(q, k, v):
    slopes = 2.0 ** -torch.arange(1, q.shape[1] + 1, dtype=q.dtype)
    distance = (torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])).abs()
    scores = q @ k.mT * q.shape[-1] ** -0.5 - slopes[:, None, None] * distance
    return scores.softmax(-1) @ v
