"""Keys are detached: W_k never learns."""

from __future__ import annotations

MISTAKE = "broken-gradients"


def attention(q, k, v):
    scores = q @ k.detach().mT * q.shape[-1] ** -0.5
    return scores.softmax(-1) @ v
