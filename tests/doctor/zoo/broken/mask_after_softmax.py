"""The mask is multiplied in after softmax: forbidden keys still count in the denominator."""

from __future__ import annotations

import torch

MISTAKE = "mask-after-softmax"


def attention(q, k, v, mask=None):
    weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v
