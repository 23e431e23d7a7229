"""The wrong factor is transposed."""

from __future__ import annotations

MISTAKE = "transposed-product"


def attention(q, k, v):
    scores = q.mT @ k * q.shape[-1] ** -0.5
    return v @ scores.softmax(-1).mT
