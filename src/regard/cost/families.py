"""Traits of model families that their config files don't contain."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """The traits of a family of models.

    The `…_field`s name config fields that override the biases given here. `full_every` is the layer pattern
    if the config lists none: every n-th layer is full, the others are local. `ffn_default` is the
    feed-forward width in multiples of d_model if the config gives none.
    """

    gated: bool = True
    norm_parameters: int = 1
    norms: int = 2
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    head_bias: bool = False
    attention_bias_field: str = ""
    ffn_bias_field: str = ""
    qk_norm: str = ""
    sinks: bool = False
    tied: bool = False
    causal: bool = True
    learned_positions: bool = False
    position_offset: int = 0
    embedding_norm: bool = False
    final_norms: int = 1
    full_every: int = 0
    window_switch: str = ""
    ffn_default: int = 0


LLAMA = Family(attention_bias_field="attention_bias", ffn_bias_field="mlp_bias")
LAYER_NORM = {"gated": False, "norm_parameters": 2, "qkv_bias": True, "out_bias": True, "ffn_bias": True}
QWEN3 = Family(qk_norm="head", attention_bias_field="attention_bias", window_switch="use_sliding_window")

FAMILIES = {
    "llama": LLAMA,
    "mistral": Family(),
    "ministral": Family(),
    "mixtral": Family(),
    "qwen2": Family(qkv_bias=True, window_switch="use_sliding_window"),
    "qwen2_moe": Family(qkv_bias=True, window_switch="use_sliding_window"),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "gemma": Family(tied=True, attention_bias_field="attention_bias"),
    "gemma2": Family(tied=True, norms=4, attention_bias_field="attention_bias", full_every=2),
    "gemma3_text": Family(
        tied=True, norms=4, qk_norm="head", attention_bias_field="attention_bias", full_every=6
    ),
    "phi": Family(**LAYER_NORM | {"norms": 1, "head_bias": True}),
    "phi3": Family(),
    "gpt2": Family(**LAYER_NORM, tied=True, learned_positions=True, ffn_default=4),
    "gpt_neox": Family(**LAYER_NORM, attention_bias_field="attention_bias"),
    "opt": Family(
        **LAYER_NORM,
        tied=True,
        learned_positions=True,
        position_offset=2,
        attention_bias_field="enable_bias",
        ffn_bias_field="enable_bias",
    ),
    "bert": Family(
        **LAYER_NORM, tied=True, causal=False, learned_positions=True, embedding_norm=True, final_norms=0
    ),
    "t5": Family(gated=False, tied=True),
    "starcoder2": Family(**LAYER_NORM, tied=True, attention_bias_field="use_bias", ffn_bias_field="use_bias"),
    "olmo2": Family(qk_norm="all", attention_bias_field="attention_bias"),
    "granite": LLAMA,
    "smollm3": Family(
        tied=True,
        attention_bias_field="attention_bias",
        ffn_bias_field="mlp_bias",
        window_switch="use_sliding_window",
    ),
    "llama4_text": Family(attention_bias_field="attention_bias", full_every=4),
    "gpt_oss": Family(
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        sinks=True,
        attention_bias_field="attention_bias",
        full_every=2,
    ),
    "deepseek_v2": Family(attention_bias_field="attention_bias"),
    "deepseek_v3": Family(attention_bias_field="attention_bias"),
}
