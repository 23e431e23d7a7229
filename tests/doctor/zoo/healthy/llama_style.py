"""Grouped queries, rotary positions and a cache that knows how long it is."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim=32, n_heads=4, n_kv_heads=2):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wk, self.wv = (nn.Linear(dim, n_kv_heads * self.head_dim, bias=False) for _ in range(2))

    def rotate(self, x, start):
        half = self.head_dim // 2
        angles = torch.arange(start, start + x.shape[2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x, cache=None):
        b, n, c = x.shape
        start = 0 if cache is None else cache[0].shape[2]
        q = self.rotate(self.wq(x).view(b, n, self.n_heads, -1).transpose(1, 2), start)
        k = self.rotate(self.wk(x).view(b, n, self.n_kv_heads, -1).transpose(1, 2), start)
        v = self.wv(x).view(b, n, self.n_kv_heads, -1).transpose(1, 2)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        allowed = torch.ones(n, k.shape[2], dtype=torch.bool).tril(k.shape[2] - n)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=True)
        return self.wo(y.transpose(1, 2).reshape(b, n, c)), (k, v)
