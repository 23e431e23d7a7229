"""The query is scaled by hand, and PyTorch's function scales once more."""

from __future__ import annotations

from torch.nn import functional as F

MISTAKE = "scale-twice"


def attention(query, key, value):
    return F.scaled_dot_product_attention(query * query.shape[-1] ** -0.5, key, value)
