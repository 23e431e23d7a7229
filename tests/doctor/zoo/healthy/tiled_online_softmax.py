"""Keys in tiles of four with an online softmax and float32 sums."""

from __future__ import annotations

import torch


def attention(q, k, v):
    top = torch.full((*q.shape[:-1], 1), -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros(q.shape)
    for start in range(0, k.shape[-2], 4):
        scores = (q @ k[..., start : start + 4, :].mT).to(out.dtype) * q.shape[-1] ** -0.5
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights, shrink = (scores - new).exp(), (top - new).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        out, top = out * shrink + weights @ v[..., start : start + 4, :].to(out.dtype), new
    return (out / total).to(q.dtype)
