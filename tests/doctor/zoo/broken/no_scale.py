"""The scores go into softmax as they are: nothing divides them by √d_k."""

from __future__ import annotations

import torch

MISTAKE = "missing-scale"


def attention(q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k)
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)
