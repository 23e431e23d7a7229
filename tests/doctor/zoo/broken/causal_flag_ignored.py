"""Takes is_causal and forgets it."""

from __future__ import annotations

MISTAKE = "causal-leak"


def attention(q, k, v, is_causal=False):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if is_causal:
        scores.new_ones(scores.shape[-2:]).triu(1)
    return scores.softmax(-1) @ v
