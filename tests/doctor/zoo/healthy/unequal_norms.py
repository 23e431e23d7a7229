"""Queries and keys are normalised before they meet."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_kv = (
            nn.Linear(d_model, d_model, bias=False),
            nn.Linear(d_model, 2 * d_model, bias=False),
        )
        self.norm_q, self.norm_k = nn.LayerNorm(d_model // heads), nn.LayerNorm(d_model // heads)
        self.to_out = nn.Sequential(nn.Linear(d_model, d_model), nn.Dropout(0.1))

    def forward(self, x):
        b, n, c = x.shape
        q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, dim=-1)
        q, k, v = (y.view(b, n, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(self.norm_q(q), self.norm_k(k), v)
        return self.to_out(y.transpose(1, 2).reshape(b, n, c))
