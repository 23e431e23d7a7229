"""A mask of zeros and -inf that is added; empty rows give zeros."""

from __future__ import annotations


def attention(q, k, v, attn_bias=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if attn_bias is not None:
        scores = scores + attn_bias
    return scores.softmax(-1).nan_to_num(0.0) @ v
