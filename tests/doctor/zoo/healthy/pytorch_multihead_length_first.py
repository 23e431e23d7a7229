"""PyTorch's own module with the length as first axis."""

from __future__ import annotations

from torch import nn


def make():
    return nn.MultiheadAttention(32, 4, dropout=0.1)
