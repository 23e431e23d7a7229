"""Causal attention, aligned at the last key."""

from __future__ import annotations

import torch
from torch.nn import functional as F

OPTIONS = {"cache": True}


def causal_attention(q, k, v):
    n, m = q.shape[-2], k.shape[-2]
    allowed = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
