"""Casts the scores to float16 for softmax, although the inputs are float32."""

from __future__ import annotations

import torch

MISTAKE = "softmax-dtype"


def attention(q, k, v):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    weights = scores.to(torch.float16).softmax(-1).to(q.dtype)
    return weights @ v
