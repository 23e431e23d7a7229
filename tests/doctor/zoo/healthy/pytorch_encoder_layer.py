"""A whole encoder layer: attention, residuals, norms and a feed-forward part."""

from __future__ import annotations

from torch import nn


def make():
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
