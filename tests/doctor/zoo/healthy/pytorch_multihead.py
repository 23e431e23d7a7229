"""PyTorch's own module."""

from __future__ import annotations

from torch import nn


def make():
    return nn.MultiheadAttention(32, 4, batch_first=True)
