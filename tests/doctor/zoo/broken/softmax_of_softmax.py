"""Softmax in the function and once more on the way out."""

from __future__ import annotations

import torch

MISTAKE = "softmax-twice"


def attention(q, k, v):
    weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
    return torch.softmax(weights, dim=-1) @ v
