"""Padded keys get their weight taken away after softmax: what they hold still counts in the denominator."""

from __future__ import annotations

from torch import nn

MISTAKE = "mask-after-softmax"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.W_q, self.W_k, self.W_v))
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        if mask is not None:
            weights = weights * mask[:, None, None, :]
        return self.W_o((weights @ v).transpose(1, 2).reshape(b, n, c))
