"""A fused projection that holds q, k and v head by head."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, hidden_size=32, heads=4):
        super().__init__()
        self.num_attention_heads = heads
        self.query_key_value, self.dense = (
            nn.Linear(hidden_size, 3 * hidden_size),
            nn.Linear(hidden_size, hidden_size),
        )

    def forward(self, hidden_states):
        b, n, c = hidden_states.shape
        fused = self.query_key_value(hidden_states).view(b, n, self.num_attention_heads, -1)
        q, k, v = fused.transpose(1, 2).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.dense(y.transpose(1, 2).reshape(b, n, c))
