"""GPT-2's attention from transformers."""

from __future__ import annotations

from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention


def make():
    sizes = {"n_embd": 32, "n_head": 4, "n_layer": 1, "n_positions": 512, "vocab_size": 64}
    sizes |= {"bos_token_id": 1, "eos_token_id": 1}
    config = GPT2Config(**sizes, attn_implementation="eager")
    return GPT2Attention(config, layer_idx=0)
