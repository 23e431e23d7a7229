"""The scale is 1/8, right for heads of 64 channels and for no others."""

from __future__ import annotations

MISTAKE = "wrong-scale"


def attention(queries, keys, values):
    scores = queries @ keys.mT * 0.125
    return scores.softmax(-1) @ values
