"""A window of 16 tokens that is cut out of the whole n × n matrix."""

from __future__ import annotations

import torch

MISTAKE = "quadratic-memory"
OPTIONS = {"linear_memory": True}


def window_attention(q, k, v):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    row, column = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
    near = (column <= row) & (row - column < 16)
    return scores.masked_fill(~near, -torch.inf).softmax(-1) @ v
