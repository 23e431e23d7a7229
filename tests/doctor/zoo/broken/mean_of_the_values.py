"""Every query gets the average of all values."""

from __future__ import annotations

MISTAKE = "scores-unused"


def attention(q, k, v):
    return v.mean(-2, keepdim=True).expand(v.shape)
