"""Causal attention to the last three tokens."""

from __future__ import annotations

import torch


def causal_window(q, k, v):
    n = q.shape[-2]
    row, column = torch.arange(n)[:, None], torch.arange(n)
    allowed = (column <= row) & (row - column < 3)
    return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~allowed, -torch.inf).softmax(-1) @ v
