"""Multi-head attention as tutorials write it: of queries, keys and values, with a mask of ones and zeros."""

from __future__ import annotations

import math

from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model=32, num_heads=4):
        super().__init__()
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split_heads(self, x):
        return x.view(x.size(0), x.size(1), self.num_heads, self.d_k).transpose(1, 2)

    def forward(self, Q, K, V, mask=None):
        q, k, v = self.split_heads(self.W_q(Q)), self.split_heads(self.W_k(K)), self.split_heads(self.W_v(V))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        out = (scores.softmax(-1) @ v).transpose(1, 2).contiguous()
        return self.W_o(out.view(Q.size(0), -1, self.num_heads * self.d_k))
