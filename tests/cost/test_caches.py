"""What is counted as cache, against the cache that a tiny model returns after it has read some tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import transformers

from regard.cost import cache_bytes, from_config, parameters
from regard.cost.measured import _Reader
from regard.cost.probe import kept_numbers, numbers_in

TOKENS, WINDOW = 21, 8
SIZES = {
    "vocab_size": 151,
    "hidden_size": 48,
    "intermediate_size": 88,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LATENT = {
    "q_lora_rank": 20,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
TINY = {
    "llama": {},
    "gpt_bigcode": {"n_embd": 48, "n_layer": 4, "n_head": 4, "n_inner": 88, "n_positions": 64},
    "gemma3_text": {
        "head_dim": 12,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts": 4,
        "mamba_d_state": 8,
        "mamba_dt_rank": 6,
    },
    "qwen3_next": {
        "head_dim": 12,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 28,
        "shared_expert_intermediate_size": 28,
    },
    "deepseek_v32": {
        **LATENT,
        "num_key_value_heads": 4,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_topk": 6,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 28,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    },
    "bloom": {"n_head": 4, "n_layer": 4},
    "cohere2": {"sliding_window": WINDOW, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
}


def built(kind: str):
    config = transformers.CONFIG_MAPPING[kind](**SIZES | TINY[kind])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", TINY)
def test_a_tiny_model_keeps_what_is_counted(kind):
    model = built(kind)
    tokens = torch.arange(TOKENS)[None] + 3
    with torch.no_grad():
        kept = numbers_in(model(input_ids=tokens, use_cache=True).past_key_values)
    shape = from_config(model.config)
    # Of a window, transformers keeps all but the key that the next query no longer sees.
    local = sum(layer.attention.cached for layer in shape.layers if layer.reach.kind == "window")
    assert cache_bytes(shape, TOKENS, dtype="float32") == 4 * (kept + local)
    assert parameters(shape).total == sum(p.numel() for p in model.parameters())


def test_numbers_that_no_layer_of_a_cache_accounts_for_are_noticed():
    cache = transformers.DynamicCache()
    cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
    assert kept_numbers(cache) == [{"tokens": 48, "recurrent_states": 0, "conv_states": 0, "float32": 0}]
    cache.memory = torch.ones(5)
    assert kept_numbers(cache) is None


@pytest.mark.parametrize("kind", ["jamba", "qwen3_next"])
def test_a_state_that_is_kept_in_float32_takes_four_bytes_a_number(kind):
    config = transformers.CONFIG_MAPPING[kind](**SIZES | TINY[kind])
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager", dtype=torch.bfloat16
    ).eval()
    with torch.no_grad():
        cache = model(input_ids=torch.arange(TOKENS)[None] + 3, use_cache=True).past_key_values
    kept = [x for layer in cache.layers for held in vars(layer).values() for x in _tensors(held)]
    held = sum(x.numel() * x.element_size() for x in kept if x.is_floating_point())
    assert cache_bytes(from_config(config), TOKENS) == held


def _tensors(held):
    if isinstance(held, torch.Tensor):
        return [held]
    parts = held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else ()
    return [x for part in parts for x in _tensors(part)]


@pytest.mark.parametrize(
    ("kept", "flops"), [(31, None), (32, (256, 192)), (63, (256, 192)), (64, None), (80, None), (256, None)]
)
def test_latents_are_told_from_whole_keys_by_how_much_is_kept(kept, flops):
    # 24 + 8 numbers are the latents of a token; with an index it is more, but less than as much again.
    reader = SimpleNamespace(config=SimpleNamespace(**LATENT))
    assert _Reader._on_latents(reader, heads=4, kept=kept) == flops
