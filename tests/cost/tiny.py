"""Tiny models with random weights, one for each family, of odd sizes."""

from __future__ import annotations

import torch
import transformers

__all__ = ["TINY", "build", "forward"]

# Widths no two of which are equal, so that a mixed-up pair of them shows.
PLAIN = {
    "vocab_size": 151,
    "hidden_size": 48,
    "intermediate_size": 88,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = PLAIN | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 20}
EXPERTS = GROUPED | {"num_local_experts": 5, "num_experts_per_tok": 2}
LATENT = {
    "q_lora_rank": 20,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 6,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 36,
    "first_k_dense_replace": 1,
}

TINY = {
    "llama": ("Llama", GROUPED),
    "llama with biases": (
        "Llama",
        GROUPED | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "mistral": ("Mistral", GROUPED | {"sliding_window": 8}),
    "mixtral": ("Mixtral", EXPERTS),
    "qwen2": ("Qwen2", GROUPED),
    "qwen2_moe": (
        "Qwen2Moe",
        GROUPED
        | {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 36}
        | {"shared_expert_intermediate_size": 28, "decoder_sparse_step": 2},
    ),
    "qwen3": ("Qwen3", WIDE),
    "qwen3_moe": (
        "Qwen3Moe",
        WIDE
        | {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 36, "mlp_only_layers": [1]},
    ),
    "gemma": ("Gemma", WIDE),
    "gemma2": ("Gemma2", WIDE | {"sliding_window": 8}),
    "gemma3_text": ("Gemma3", WIDE | {"sliding_window": 8}),
    "phi": ("Phi", GROUPED),
    "phi3": ("Phi3", GROUPED),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": 151, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64}
        | {"bos_token_id": 1, "eos_token_id": 2},
    ),
    "gpt_neox": ("GPTNeoX", PLAIN),
    "opt": ("OPT", {**PLAIN, "ffn_dim": 88, "word_embed_proj_dim": 48}),
    "opt with a narrow embedding": ("OPT", {**PLAIN, "ffn_dim": 88, "word_embed_proj_dim": 20}),
    "bert": ("BertModel", PLAIN),
    "bert for masked words": ("BertForMaskedLM", PLAIN),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 151, "d_model": 48, "d_kv": 10, "d_ff": 88, "num_layers": 2, "num_decoder_layers": 3}
        | {"num_heads": 4, "relative_attention_num_buckets": 8, "feed_forward_proj": "gated-gelu"},
    ),
    "starcoder2": ("Starcoder2", GROUPED),
    "olmo2": ("Olmo2", GROUPED),
    "granite": ("Granite", GROUPED),
    "smollm3": ("SmolLM3", GROUPED),
    "gpt_oss": ("GptOss", EXPERTS | {"head_dim": 20, "sliding_window": 8}),
    "llama4_text": (
        "Llama4",
        EXPERTS
        | {"head_dim": 20, "num_hidden_layers": 4, "intermediate_size_mlp": 100, "attention_chunk_size": 8}
        | {"interleave_moe_layer_step": 2, "num_experts_per_tok": 1},
    ),
    "deepseek_v2": ("DeepseekV2", PLAIN | LATENT | {"num_key_value_heads": 4, "q_lora_rank": None}),
    "deepseek_v3": ("DeepseekV3", PLAIN | LATENT | {"num_key_value_heads": 4}),
}


def build(name: str) -> torch.nn.Module:
    """The tiny model of a family; its attention is plain matrix products, which PyTorch's counter sees."""
    kind, fields = TINY[name]
    model = getattr(transformers, kind, None) or getattr(transformers, f"{kind}ForCausalLM")
    config = model.config_class(**fields)
    config.architectures = [model.__name__]
    config._attn_implementation = config._experts_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return model(config).eval()


def forward(model: torch.nn.Module, length: int, target: int, batch: int) -> None:
    """One pass over tokens that are nothing in particular."""
    tokens = torch.arange(batch * length).reshape(batch, length) % 140 + 3
    more = {}
    if model.config.is_encoder_decoder:
        more["decoder_input_ids"] = torch.arange(batch * target).reshape(batch, target) % 140 + 3
    with torch.no_grad():
        model(
            input_ids=tokens, **({} if "BertModel" in type(model).__name__ else {"use_cache": False}) | more
        )
