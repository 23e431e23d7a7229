"""A function that takes another to modify the scores, in the manner of FlexAttention."""

from __future__ import annotations

import torch


def flex(query, key, value, score_mod=None, scale=None):
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        b, h, i, j = torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij")
        scores = score_mod(scores, b, h, i, j)
    return scores.softmax(-1) @ value
