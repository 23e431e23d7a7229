"""Scores of later tokens are multiplied by zero: softmax of zero is not zero."""

from __future__ import annotations

import torch

MISTAKE = "mask-weak"


def causal_attention(query, key, value):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    scores = scores * torch.tril(torch.ones(scores.shape[-2:]))
    return torch.softmax(scores, dim=-1) @ value
