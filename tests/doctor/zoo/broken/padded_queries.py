"""The padding mask forbids padded queries and leaves padded keys in."""

from __future__ import annotations

import torch
from torch import nn

MISTAKE = "padding-leak"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.num_heads = heads
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, padding_mask=None):
        b, n, c = x.shape
        q, k, v = (y.view(b, n, self.num_heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if padding_mask is not None:
            scores = scores.masked_fill(padding_mask[:, None, :, None], torch.finfo(x.dtype).min)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
