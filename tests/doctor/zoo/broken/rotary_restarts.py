"""Rotary positions of new tokens start at zero, whatever the cache holds."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

MISTAKE = "rotary-cache-offset"


def rotate(x, start=0):
    half = x.shape[-1] // 2
    turns = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(start, start + x.shape[-2])[:, None] * turns
    angles = torch.cat([angles, angles], -1)
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * angles.cos() + turned * angles.sin()


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, kv_cache=None):
        b, n, c = x.shape
        q, k, v = (
            f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q), rotate(k)
        if kv_cache is not None:
            k, v = torch.cat([kv_cache[0], k], 2), torch.cat([kv_cache[1], v], 2)
        allowed = torch.ones(n, k.shape[2], dtype=torch.bool).tril(k.shape[2] - n)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.o_proj(y.transpose(1, 2).reshape(b, n, c)), (k, v)
