"""A single head whose softmax runs over dim=1, the queries of a (batch, q, k) tensor."""

from __future__ import annotations

from torch import nn

MISTAKE = "softmax-axis"
OPTIONS = {"heads": 1}


class Head(nn.Module):
    def __init__(self, d_model=16, size=16):
        super().__init__()
        self.query, self.key = nn.Linear(d_model, size, bias=False), nn.Linear(d_model, size, bias=False)
        self.value = nn.Linear(d_model, size, bias=False)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.transpose(1, 2) * k.shape[-1] ** -0.5
        return scores.softmax(dim=1) @ v
