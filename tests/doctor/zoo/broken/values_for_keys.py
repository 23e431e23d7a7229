"""Queries are scored against values."""

from __future__ import annotations

MISTAKE = "parts-swapped"


def attention(q, k, v):
    weights = (q @ v.mT * q.shape[-1] ** -0.5).softmax(-1)
    return weights @ k
