"""Tiny random models of every family transformers knows, built from their configs alone."""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from typing import Any

import torch

# What makes a config small, by the names configs use. Sizes that must divide each other do.
SMALL: dict[str, Any] = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "n_embed": 32, "hidden_dim": 48,
    "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "n_inner": 48, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24, "dense_intermediate_size": 48,
    "embedding_size": 32, "embedding_dim": 32, "ffn_hidden_size": 48, "intermediate_size_mlp": 48,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_encoder_layers": 2, "num_decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "v_head_dim": 8, "attention_head_size": 8, "dim_head": 8,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "global_head_dim": 8, "num_global_key_value_heads": 2, "swa_head_dim": 8, "swa_num_key_value_heads": 2,
    "swa_num_attention_heads": 4, "swa_v_head_dim": 8,
    "vocab_size": 96, "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128,
    "max_source_positions": 128, "max_target_positions": 128, "entity_vocab_size": 16,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "moe_num_experts": 4, "num_expert_groups": 1, "moe_k": 2, "top_k": 2, "moe_topk": 2,
    "type_vocab_size": 2, "first_k_dense_replace": 1, "num_dense_layers": 1, "n_shared_experts": 1,
    "sliding_window": 8, "attention_window": 8, "attention_chunk_size": 8, "local_attention": 8,
    "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_expand": 2, "mamba_n_groups": 1,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, "laurel_rank": 8, "num_kv_shared_layers": 0,
}  # fmt: skip
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
# Regularisation draws random numbers; a comparison must not.
QUIET = ("dropout", "drop", "layerdrop")


@cache
def families() -> dict[str, type]:
    """The config class of every model type that has a base model, from transformers itself."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    found = {}
    for name in sorted(MODEL_MAPPING_NAMES):
        if name in CONFIG_MAPPING_NAMES:
            found[name] = CONFIG_MAPPING_NAMES[name]
    return found


def config_class(name: str) -> type:
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[name]


def tiny_config(kind: type, **extra: Any) -> Any:
    """A config of this class with everything small; its parts are made small too."""
    whole = kind()
    changes: dict[str, Any] = {}
    given = {**whole.to_dict(), **{k: getattr(whole, k, None) for k in whole.attribute_map}}
    for key, value in given.items():
        if key in SMALL and (isinstance(value, int) and not isinstance(value, bool) or key in IDS):
            changes[key] = SMALL[key]
        elif isinstance(value, float) and any(word in key for word in QUIET):
            changes[key] = 0.0
    for key, part in whole.sub_configs.items():
        if isinstance(getattr(whole, key, None), part):
            changes[key] = tiny_config(part)
    types = getattr(whole, "layer_types", None)
    if types:
        changes["layer_types"] = _two_of(types)
    mapped = {whole.attribute_map[k] for k in changes if k in whole.attribute_map}
    changes = {k: v for k, v in changes.items() if k not in mapped or k not in whole.attribute_map}
    return kind(**{**changes, **extra})


def _two_of(types: list[str]) -> list[str]:
    """Two layers, of two kinds if there are two, attention among them."""
    kinds = list(dict.fromkeys(types))
    attention = [kind for kind in kinds if "attention" in kind and "linear" not in kind] or kinds
    return (attention * 2)[:2] if len(attention) > 1 else [attention[0], attention[0]]


def tiny_model(name: str, **extra: Any) -> torch.nn.Module:
    """A model of a family with random weights, ready to run."""
    from transformers import AutoModel

    config = tiny_config(config_class(name), **extra)
    torch.manual_seed(0)
    return AutoModel.from_config(config, attn_implementation="eager").eval()
