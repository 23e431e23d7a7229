"""Softmax with dim=1, written for three axes and used with four: the heads compete."""

from __future__ import annotations

import torch

MISTAKE = "softmax-axis"


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, dim=1) @ v
