"""Heads side by side, split and joined inside."""

from __future__ import annotations

from torch.nn import functional as F


def multi_head(queries, keys, values, num_heads):
    b, n, c = queries.shape
    q, k, v = (x.view(b, -1, num_heads, c // num_heads).transpose(1, 2) for x in (queries, keys, values))
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).reshape(b, n, c)
