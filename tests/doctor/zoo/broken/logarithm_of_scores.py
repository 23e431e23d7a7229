"""A logarithm of negative scores."""

from __future__ import annotations

MISTAKE = "nan-output"


def attention(q, k, v):
    scores = (q @ k.mT * q.shape[-1] ** -0.5).log()
    return scores.softmax(-1) @ v
