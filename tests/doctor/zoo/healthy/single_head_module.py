"""One head without an output projection: with one head there is nothing to mix."""

from __future__ import annotations

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, n_embd=32, head_size=16):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(n_embd, head_size, bias=False) for _ in range(3))

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        forbidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return scores.masked_fill(forbidden, float("-inf")).softmax(-1) @ v
