"""F.dropout without training=self.training: it drops in evaluation too."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

MISTAKE = "dropout-in-eval"


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4, p=0.1):
        super().__init__()
        self.num_heads, self.p = heads, p
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (y.view(b, n, self.num_heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        weights = F.dropout((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1), self.p)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, c))
