"""Llama's attention from transformers, given its rotary positions and a causal mask."""

from __future__ import annotations

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding


class Attention(nn.Module):
    """Causal: the mask is handed in as a model would."""

    def __init__(self):
        super().__init__()
        sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64}
        config = LlamaConfig(**sizes, attn_implementation="eager")
        self.self_attn, self.rotary = LlamaAttention(config, layer_idx=0), LlamaRotaryEmbedding(config)

    def forward(self, x):
        n = x.shape[1]
        mask = torch.zeros(n, n, dtype=x.dtype).masked_fill(
            torch.ones(n, n).triu(1).bool(), torch.finfo(x.dtype).min
        )
        positions = self.rotary(x, torch.arange(n)[None])
        return self.self_attn(x, position_embeddings=positions, attention_mask=mask[None, None])[0]
