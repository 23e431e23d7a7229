"""Has an output projection and forgets to call it."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

MISTAKE = "missing-output-projection"


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        self.num_heads = heads
        self.to_qkv, self.to_out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (y.view(b, n, self.num_heads, -1).transpose(1, 2) for y in self.to_qkv(x).chunk(3, -1))
        out = F.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).reshape(b, n, c)
