"""Presets: models by name, each with the source of its numbers."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from regard.cost.attention import Attention
from regard.cost.config import by_formula, from_config
from regard.cost.fields import Fields
from regard.cost.hybrids import HYBRIDS
from regard.cost.shape import FeedForward, Layer, ModelShape
from regard.errors import ModelError

__all__ = ["PRESETS", "preset"]


def _config(
    kind: str,
    layers: int,
    d_model: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocab: int,
    context: int,
    **more: Any,
) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": d_model,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        **more,
    }


def _transformer(d_model: int, heads: int, ffn: int) -> ModelShape:
    """The encoder–decoder of 2017: positions are not learned, both embeddings and the head are one."""
    attention = Attention(heads, heads, d_model // heads)
    encoder = Layer(attention, FeedForward(ffn, bias=True), causal=False, encoder=True)
    decoder = replace(encoder, causal=True, encoder=False, cross=True, norms=3)
    note = "the vocabulary is published as about 37000; the length trained for is not published"
    return ModelShape(
        "", d_model, (encoder,) * 6 + (decoder,) * 6, 37000, norm_parameters=2, final_norms=0, notes=(note,)
    )


GPT3 = "every second layer of GPT-3 is banded, and the band is not published: all are counted as full"
TIED = {"tie_word_embeddings": True}
GEMMA = {"head_dim": 256, **TIED}

PRESETS: dict[str, ModelShape | dict[str, Any]] = {
    # Vaswani et al. 2017, "Attention Is All You Need", table 3.
    "transformer-base": _transformer(512, 8, 2048),
    "transformer-big": _transformer(1024, 16, 4096),
    # Devlin et al. 2018, "BERT", section 3; the vocabulary from the released checkpoints.
    "bert-base": _config("bert", 12, 768, 12, 12, 3072, 30522, 512, type_vocab_size=2),
    "bert-large": _config("bert", 24, 1024, 16, 16, 4096, 30522, 512, type_vocab_size=2),
    # Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", table 2; checkpoints.
    "gpt2": _config("gpt2", 12, 768, 12, 12, 3072, 50257, 1024),
    "gpt2-xl": _config("gpt2", 48, 1600, 25, 25, 6400, 50257, 1024),
    # Brown et al. 2020, "Language Models are Few-Shot Learners", table 2.1.
    "gpt3-175b": _config("gpt2", 96, 12288, 96, 96, 49152, 50257, 2048),
    # Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", table 2.
    "llama-7b": _config("llama", 32, 4096, 32, 32, 11008, 32000, 2048),
    # Touvron et al. 2023, "Llama 2: Open Foundation and Fine-Tuned Chat Models", table 1 and model card.
    "llama-2-70b": _config("llama", 80, 8192, 64, 8, 28672, 32000, 4096),
    # Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 3; model cards of Llama 3.1 and 3.2.
    "llama-3.1-8b": _config("llama", 32, 4096, 32, 8, 14336, 128256, 131072),
    "llama-3.1-70b": _config("llama", 80, 8192, 64, 8, 28672, 128256, 131072),
    "llama-3.1-405b": _config("llama", 126, 16384, 128, 8, 53248, 128256, 131072),
    "llama-3.2-1b": _config("llama", 16, 2048, 32, 8, 8192, 128256, 131072, **TIED),
    # Model card of Llama 4 Maverick: 17B active, 400B in all, 128 routed experts in every second layer.
    "llama-4-maverick": _config(
        "llama4_text",
        48,
        5120,
        40,
        8,
        8192,
        202048,
        1048576,
        head_dim=128,
        intermediate_size_mlp=16384,
        num_local_experts=128,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=8192,
    ),
    # Model card of Llama 4 Scout: 17B active, 109B in all, 16 routed experts in every layer.
    "llama-4-scout": _config(
        "llama4_text",
        48,
        5120,
        40,
        8,
        8192,
        202048,
        10485760,
        head_dim=128,
        intermediate_size_mlp=16384,
        num_local_experts=16,
        num_experts_per_tok=1,
        interleave_moe_layer_step=1,
        attention_chunk_size=8192,
    ),
    # Jiang et al. 2023, "Mistral 7B", table 1.
    "mistral-7b": _config("mistral", 32, 4096, 32, 8, 14336, 32000, 32768, sliding_window=4096),
    # Jiang et al. 2024, "Mixtral of Experts", table 1.
    "mixtral-8x7b": _config(
        "mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, num_local_experts=8, num_experts_per_tok=2
    ),
    # Qwen team 2024, "Qwen2.5 Technical Report" and model card.
    "qwen2.5-7b": _config("qwen2", 28, 3584, 28, 4, 18944, 152064, 131072),
    # Qwen team 2025, "Qwen3 Technical Report", tables 1 and 2, and model cards.
    "qwen3-0.6b": _config("qwen3", 28, 1024, 16, 8, 3072, 151936, 32768, head_dim=128, **TIED),
    "qwen3-8b": _config("qwen3", 36, 4096, 32, 8, 12288, 151936, 32768, head_dim=128),
    "qwen3-30b-a3b": _config(
        "qwen3_moe",
        48,
        2048,
        32,
        4,
        6144,
        151936,
        32768,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
    # Gemma team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", table 1.
    "gemma-2-2b": _config("gemma2", 26, 2304, 8, 4, 9216, 256000, 8192, sliding_window=4096, **GEMMA),
    # Gemma team 2025, "Gemma 3 Technical Report" and model card: five windows of 512 to one full layer.
    "gemma-3-1b": _config("gemma3_text", 26, 1152, 4, 1, 6912, 262144, 32768, sliding_window=512, **GEMMA),
    # The same report and model cards, the text part alone: windows of 1024 in the larger ones.
    "gemma-3-4b": _config("gemma3_text", 34, 2560, 8, 4, 10240, 262208, 131072, sliding_window=1024, **GEMMA),
    "gemma-3-27b": _config(
        "gemma3_text",
        62,
        5376,
        32,
        16,
        21504,
        262208,
        131072,
        sliding_window=1024,
        **{**GEMMA, "head_dim": 128},
    ),
    # Hugging Face 2025, "SmolLM2: When Smol Goes Big", and model card.
    "smollm2-135m": _config("llama", 30, 576, 9, 3, 1536, 49152, 8192, **TIED),
    # OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", table 1 and section 2.
    "gpt-oss-20b": _config(
        "gpt_oss",
        24,
        2880,
        64,
        8,
        2880,
        201088,
        131072,
        head_dim=64,
        sliding_window=128,
        num_local_experts=32,
        num_experts_per_tok=4,
    ),
    "gpt-oss-120b": _config(
        "gpt_oss",
        36,
        2880,
        64,
        8,
        2880,
        201088,
        131072,
        head_dim=64,
        sliding_window=128,
        num_local_experts=128,
        num_experts_per_tok=4,
    ),
    # DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 4.2; without the extra prediction layer.
    "deepseek-v3": _config(
        "deepseek_v3",
        61,
        7168,
        128,
        128,
        18432,
        129280,
        131072,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
    ),
}
OTHER_NAMES = {"gpt3": "gpt3-175b", "gpt-3": "gpt3-175b", "gpt-2": "gpt2", "llama-1-7b": "llama-7b"}


def preset(name: str) -> ModelShape:
    """The shape of a published model.

    >>> preset("mistral-7b").kinds
    {'window:4096': 32}
    """
    key = name.strip().lower().replace("_", "-")
    key = OTHER_NAMES.get(key, key)
    if key in HYBRIDS:
        return from_config(HYBRIDS[key], name=key)
    found = PRESETS.get(key)
    if found is None:
        near = get_close_matches(key, [*PRESETS, *HYBRIDS], n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ModelError(
            f"there is no preset {name!r}; presets are: {', '.join([*PRESETS, *HYBRIDS])}.{hint}"
        )
    if isinstance(found, ModelShape):
        return replace(found, name=key)
    # Tests compare these with the modules of transformers; using them builds no model.
    made = by_formula(Fields(found, key))
    return replace(made, notes=(*made.notes, GPT3)) if key == "gpt3-175b" else made
