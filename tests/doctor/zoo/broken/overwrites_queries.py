"""The scale is applied in place, to the tensor of the caller."""

from __future__ import annotations

MISTAKE = "changes-input"


def attention(q, k, v):
    q *= q.shape[-1] ** -0.5
    return (q @ k.mT).softmax(-1) @ v
