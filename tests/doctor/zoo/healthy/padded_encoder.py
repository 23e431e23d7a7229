"""Self-attention with an attention_mask of ones and zeros."""

from __future__ import annotations

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.num_heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, hidden_states, attention_mask=None):
        b, n, c = hidden_states.shape
        q, k, v = (
            f(hidden_states).view(b, n, self.num_heads, -1).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
        return self.output((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
