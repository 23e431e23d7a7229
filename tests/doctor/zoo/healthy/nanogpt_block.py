"""A causal block with a fused projection, a mask buffer and two dropouts."""

from __future__ import annotations

import torch
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd=32, n_head=4, block_size=512, dropout=0.1):
        super().__init__()
        self.n_head = n_head
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer(
            "bias", torch.ones(block_size, block_size).tril().view(1, 1, block_size, block_size)
        )

    def forward(self, x):
        b, n, c = x.size()
        q, k, v = (
            y.view(b, n, self.n_head, c // self.n_head).transpose(1, 2)
            for y in self.c_attn(x).split(c, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)) * k.size(-1) ** -0.5
        scores = scores.masked_fill(self.bias[:, :, :n, :n] == 0, float("-inf"))
        y = self.attn_dropout(scores.softmax(-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, n, c)))
