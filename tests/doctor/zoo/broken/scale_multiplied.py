"""The scores are multiplied by √d_k where they should be divided."""

from __future__ import annotations

import torch

MISTAKE = "wrong-scale"


def attention(q, k, v):
    d = q.shape[-1]
    scores = q @ k.transpose(-2, -1) * d**0.5
    return torch.softmax(scores, dim=-1) @ v
