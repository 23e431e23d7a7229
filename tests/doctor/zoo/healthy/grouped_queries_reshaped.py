"""Grouped queries by giving the queries an axis for groups."""

from __future__ import annotations

import torch


def attention(q, k, v):
    b, h, n, d = q.shape
    groups = q.reshape(b, k.shape[1], h // k.shape[1], n, d)
    weights = torch.einsum("bgrid,bgjd->bgrij", groups * d**-0.5, k).softmax(-1)
    return torch.einsum("bgrij,bgjd->bgrid", weights, v).reshape(b, h, n, d)
