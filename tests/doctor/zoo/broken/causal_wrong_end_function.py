"""A function meant for cached decoding that hands is_causal to PyTorch, which starts at the first key."""

from __future__ import annotations

from torch.nn import functional as F

MISTAKE = "causal-wrong-end"
OPTIONS = {"cache": True}


def attention(q, k, v, is_causal=True):
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
