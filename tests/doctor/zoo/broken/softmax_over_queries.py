"""Softmax runs over the queries: the weights of a query do not sum to one."""

from __future__ import annotations

import torch

MISTAKE = "softmax-axis"


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-2) @ v
