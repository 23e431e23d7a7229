"""The weights are computed and not used."""

from __future__ import annotations

MISTAKE = "scores-unused"


def attention(q, k, v):
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)  # noqa: F841
    return v
