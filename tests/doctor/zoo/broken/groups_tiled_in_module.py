"""Grouped-query attention that concatenates copies of its key heads."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

MISTAKE = "gqa-order"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4, kv_heads=2):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.d = heads, kv_heads, d_model // heads
        self.wq, self.wo = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, d_model, bias=False)
        self.wk, self.wv = (nn.Linear(d_model, kv_heads * self.d, bias=False) for _ in range(2))

    def forward(self, x):
        b, n, c = x.shape
        q = self.wq(x).view(b, n, self.n_heads, self.d).transpose(1, 2)
        k, v = (f(x).view(b, n, self.n_kv_heads, self.d).transpose(1, 2) for f in (self.wk, self.wv))
        k, v = (torch.cat([y] * (self.n_heads // self.n_kv_heads), dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, n, c))
