"""The scale is taken from d_model, although each head is only d_model / heads wide."""

from __future__ import annotations

from torch import nn

MISTAKE = "scale-d-model"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.heads, self.scale = heads, d_model**-0.5
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.o_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (
            f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        weights = (q @ k.mT * self.scale).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, n, c))
