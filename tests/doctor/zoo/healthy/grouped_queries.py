"""Grouped queries: key heads repeated in place."""

from __future__ import annotations


def attention(q, k, v):
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
