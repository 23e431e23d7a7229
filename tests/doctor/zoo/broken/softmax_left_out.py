"""Scores are used as weights."""

from __future__ import annotations

MISTAKE = "no-softmax"


def attention(q, k, v):
    return q @ k.mT * q.shape[-1] ** -0.5 @ v
