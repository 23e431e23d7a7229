"""Repeats key heads as 0 1 0 1 where the groups need 0 0 1 1."""

from __future__ import annotations

from torch.nn import functional as F

MISTAKE = "gqa-order"


def attention(q, k, v):
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)
    return F.scaled_dot_product_attention(q, k, v)
