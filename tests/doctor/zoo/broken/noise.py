"""Adds noise that no seed of PyTorch's controls."""

from __future__ import annotations

import random

MISTAKE = "non-determinism"


def attention(q, k, v):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return (scores + 0.01 * random.random()).softmax(-1) @ v * (1 + 0.01 * random.random())
