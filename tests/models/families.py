"""Tiny random models of every family transformers knows, built from their configs alone."""

from __future__ import annotations

import copy
import inspect
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import torch

# What makes a config small, by the names that configs use.
SMALL: dict[str, Any] = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "n_embed": 32,
    "hidden_dim": 48,
    "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "n_inner": 48, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24,
    "dense_intermediate_size": 48, "embedding_size": 32, "embedding_dim": 32, "ffn_hidden_size": 48,
    "intermediate_size_mlp": 48, "projection_dim": 16, "out_hidden_size": 32,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "depth": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "v_head_dim": 8, "attention_head_size": 8,
    "dim_head": 8,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "qk_head_dim": 16,
    "global_head_dim": 8, "num_global_key_value_heads": 2, "swa_head_dim": 8, "swa_num_key_value_heads": 2,
    "swa_num_attention_heads": 4, "swa_v_head_dim": 8,
    "vocab_size": 96, "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128,
    "max_source_positions": 128, "max_target_positions": 128, "entity_vocab_size": 16,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "moe_num_experts": 4, "num_expert_groups": 1, "moe_k": 2, "top_k": 2, "moe_topk": 2,
    "type_vocab_size": 2, "first_k_dense_replace": 1, "num_dense_layers": 1, "n_shared_experts": 1,
    "sliding_window": 8, "attention_window": 8, "attention_chunk_size": 8, "local_attention": 8,
    "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_expand": 2, "mamba_n_groups": 1,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, "laurel_rank": 8,
    "num_kv_shared_layers": 0, "image_size": 16, "patch_size": 4, "num_frames": 4, "tubelet_size": 2,
    "shape_vocab_size": 16, "pronunciation_vocab_size": 16,
}  # fmt: skip
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
# Regularisation draws random numbers; a comparison must not.
QUIET = ("dropout", "drop", "layerdrop")
LENGTH = 21
PARAMETERS = 8_000_000


@cache
def notes() -> dict[str, dict[str, Any]]:
    """What the data file says: families that need other sizes, and those left out, each with its reason."""
    return tomllib.loads((Path(__file__).parent / "families.toml").read_text(encoding="utf-8"))


@cache
def registered() -> tuple[str, ...]:
    """Every model type whose modeling file asks the registry for its attention, from transformers itself."""
    import transformers
    from transformers.models.auto.configuration_auto import model_type_to_module_name
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    folder = Path(transformers.__file__).parent / "models"
    found = []
    for name in sorted(MODEL_MAPPING_NAMES):
        module = model_type_to_module_name(name)
        file = folder / module / f"modeling_{module}.py"
        if file.exists() and "ALL_ATTENTION_FUNCTIONS.get_interface(" in file.read_text(encoding="utf-8"):
            found.append(name)
    return tuple(found)


def tiny_config(name: str) -> Any:
    """A config of a family with everything small, the caller's own."""
    return copy.deepcopy(_tiny_config(name))


@cache
def _tiny_config(name: str) -> Any:
    from transformers import CONFIG_MAPPING

    return _small(CONFIG_MAPPING[name], notes()["sizes"].get(name, {}))


def _small(kind: type, extra: dict[str, Any]) -> Any:
    whole = kind()
    changes: dict[str, Any] = {}
    named = {key: _read(whole, key) for key in (*whole.to_dict(), *whole.attribute_map)}
    for key, value in named.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if key in SMALL and (number or key in IDS):
            changes[key] = SMALL[key]
        elif isinstance(value, float) and any(word in key for word in QUIET):
            changes[key] = 0.0
    if "kv_lora_rank" in changes:
        # Latent attention has one key head for each query head.
        changes["num_key_value_heads"] = changes.get("num_attention_heads", 4)
    for key, part in whole.sub_configs.items():
        if isinstance(getattr(whole, key, None), part):
            changes[key] = _small(part, extra.get(key, {}))
    if getattr(whole, "layer_types", None) and not isinstance(getattr(kind, "layer_types", None), property):
        changes["layer_types"] = _two_of(whole.layer_types)
    # A config knows some of its settings by two names; it is told the one it keeps.
    changes = {key: value for key, value in changes.items() if key not in whole.attribute_map}
    plain = {key: value for key, value in extra.items() if key not in whole.sub_configs}
    return kind(**{**changes, **plain})


def _read(config: Any, key: str) -> Any:
    try:
        return getattr(config, key, None)
    except Exception:  # some settings differ from layer to layer and refuse to be read as one
        return config.to_dict().get(key)


def _two_of(types: list[str]) -> list[str]:
    """Two layers that attend, of two kinds if there are two."""
    kinds = list(dict.fromkeys(types))
    attending = [kind for kind in kinds if "attention" in kind and "linear" not in kind] or kinds
    return (attending * 2)[:2]


def tiny_model(name: str, head: str = "AutoModel") -> Any:
    """A model of a family with random weights that are the same every time."""
    import transformers

    kind = getattr(transformers, head)
    config = tiny_config(name)
    with torch.device("meta"):
        size = sum(x.numel() for x in kind.from_config(config).parameters())
    if size > PARAMETERS:
        raise ValueError(f"{name} has {size / 1e6:.0f} million parameters, however small its config")
    torch.manual_seed(0)
    return kind.from_config(tiny_config(name), attn_implementation="eager").eval()


def inputs_of(model: Any, *, padded: bool = False) -> dict[str, torch.Tensor]:
    """Something for a model to read, by the name of its main input."""
    draw = torch.Generator().manual_seed(3)
    kind = model.main_input_name
    if kind == "pixel_values":
        config = getattr(model.config, "vision_config", model.config)
        side = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
        channels = getattr(config, "num_channels", 3)
        return {kind: torch.randn(2, channels, side, side, generator=draw)}
    if kind == "input_values":
        return {kind: torch.randn(2, 2000, generator=draw)}
    if kind == "input_features" and hasattr(model.config, "num_mel_bins"):
        frames = torch.randn(2, model.config.num_mel_bins, 2 * SMALL["max_source_positions"], generator=draw)
        spoken = torch.randint(3, 90, (2, 13), generator=draw)
        return {kind: frames, **({"decoder_input_ids": spoken} if model.config.is_encoder_decoder else {})}
    if kind != "input_ids":
        raise ValueError(f"reads {kind}")
    found = {kind: torch.randint(3, 90, (2, LENGTH), generator=draw)}
    if padded:
        found["attention_mask"] = torch.ones(2, LENGTH, dtype=torch.long)
        found["attention_mask"][0, :5] = 0
        found["attention_mask"][1, -4:] = 0
    if model.config.is_encoder_decoder:
        found["decoder_input_ids"] = torch.randint(3, 90, (2, 13), generator=draw)
    wanted = inspect.signature(model.forward).parameters
    return {key: value for key, value in found.items() if key in wanted or "kwargs" in wanted}
