"""Forbids triu(diagonal=0), the diagonal included: no token sees itself."""

from __future__ import annotations

import torch
from torch import nn

MISTAKE = "cannot-see-itself"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=2):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.wq, self.wk, self.wv))
        forbidden = torch.ones(n, n, dtype=torch.bool).triu(diagonal=0)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(forbidden, -1e9)
        return self.wo((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
