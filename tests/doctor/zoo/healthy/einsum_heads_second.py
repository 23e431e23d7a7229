"""Einsum over (batch, heads, length, dim), with the weights returned too."""

from __future__ import annotations

import torch


def attention(query, key, value):
    scores = torch.einsum("bhid,bhjd->bhij", query, key) * query.shape[-1] ** -0.5
    weights = scores.softmax(dim=-1)
    return torch.einsum("bhij,bhjd->bhid", weights, value), weights
