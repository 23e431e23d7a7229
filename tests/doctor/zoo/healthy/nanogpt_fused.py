"""The same with PyTorch's kernel; dropout only while training."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd=32, n_head=4, dropout=0.1):
        super().__init__()
        self.n_head, self.dropout = n_head, dropout
        self.c_attn, self.c_proj = (
            nn.Linear(n_embd, 3 * n_embd, bias=False),
            nn.Linear(n_embd, n_embd, bias=False),
        )

    def forward(self, x):
        b, n, c = x.size()
        q, k, v = (
            y.view(b, n, self.n_head, c // self.n_head).transpose(1, 2)
            for y in self.c_attn(x).split(c, dim=2)
        )
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, n, c))
