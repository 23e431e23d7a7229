"""The query is scaled, and then the scores are scaled again."""

from __future__ import annotations

import torch

MISTAKE = "scale-twice"


def attention(q, k, v):
    scale = q.shape[-1] ** -0.5
    q = q * scale
    scores = q @ k.transpose(-2, -1) * scale
    return torch.softmax(scores, dim=-1) @ v
