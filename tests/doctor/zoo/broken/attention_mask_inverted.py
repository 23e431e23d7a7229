"""attention_mask has 1 for tokens, and the tokens are what this fills with -inf."""

from __future__ import annotations

import torch
from torch import nn

MISTAKE = "mask-inverted"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.num_heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, attention_mask=None):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, None, :] == 1, torch.finfo(x.dtype).min)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
