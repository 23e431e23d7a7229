"""Causal attention that cuts the future off only after softmax."""

from __future__ import annotations

from torch import nn

MISTAKE = "mask-after-softmax"


class CausalAttention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.n_head = heads
        self.c_attn, self.c_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (y.view(b, n, self.n_head, -1).transpose(1, 2) for y in self.c_attn(x).split(c, dim=2))
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1).tril()
        return self.c_proj((weights @ v).transpose(1, 2).reshape(b, n, c))
