"""Padding is forbidden with -100, which large scores overcome."""

from __future__ import annotations

from torch import nn

MISTAKE = "finite-mask"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.num_heads = heads
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, attention_mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -100
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
