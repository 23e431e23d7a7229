"""exp divided by its sum, with nothing subtracted first."""

from __future__ import annotations

import torch

MISTAKE = "softmax-overflow"


def attention(q, k, v):
    weights = torch.exp(q @ k.mT * q.shape[-1] ** -0.5)
    return weights / weights.sum(-1, keepdim=True) @ v
