"""BERT's attention from transformers, with its residual and norm."""

from __future__ import annotations

from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertAttention


def make():
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 64}
    return BertAttention(BertConfig(**sizes, attn_implementation="eager"))
