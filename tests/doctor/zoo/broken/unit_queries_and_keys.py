"""Queries and keys are scaled to length 1, and then by the usual scale as well."""

from __future__ import annotations

from torch.nn import functional as F

MISTAKE = "normalised-inside"


def attention(q, k, v):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
