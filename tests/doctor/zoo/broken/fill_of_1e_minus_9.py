"""A sign in the wrong place: 1e-9 where -1e9 was meant."""

from __future__ import annotations

MISTAKE = "mask-weak"


def attention(q, k, v, mask=None):
    attn = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        attn = attn.masked_fill(mask == 0, 1e-9)
    return attn.softmax(-1) @ v
