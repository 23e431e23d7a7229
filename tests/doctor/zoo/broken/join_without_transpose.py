"""Splits the heads well and joins them with a reshape that forgets to transpose back."""

from __future__ import annotations

from torch.nn import functional as F

MISTAKE = "heads-mixed"


def attention(q, k, v, num_heads):
    b, n, c = q.shape
    q, k, v = (x.view(b, -1, num_heads, c // num_heads).transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v)
    return out.reshape(b, n, c)
