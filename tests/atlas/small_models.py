"""Tiny random models, and attention with edited weights: dense, slow and obvious."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch

with warnings.catch_warnings():
    # transformers and what it imports warn about themselves.
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()

IDS = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
SIZES = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def _made(kind: str, config: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()
    for weight in model.parameters():
        # Fresh weights attend almost evenly; larger ones have something to lose.
        if weight.ndim == 2:
            weight.data *= 4
    return model


def llama(**changes: Any) -> Any:
    """Three layers, four query heads, two key heads."""
    return _made("LlamaForCausalLM", transformers.LlamaConfig(**{**SIZES, **HEADS, **IDS, **changes}))


def mistral() -> Any:
    """Sees five tokens at a time."""
    config = transformers.MistralConfig(**SIZES, **HEADS, **IDS, sliding_window=5)
    return _made("MistralForCausalLM", config)


def gpt2() -> Any:
    """Its layers are Conv1D, its positions learned."""
    config = transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=3, n_head=4, n_positions=64, **IDS)
    return _made("GPT2LMHeadModel", config)


def gemma2() -> Any:
    """Caps its scores and its logits."""
    config = transformers.Gemma2Config(**SIZES, **HEADS, **IDS, head_dim=8, sliding_window=5)
    return _made("Gemma2ForCausalLM", config)


def bert() -> Any:
    """An encoder: every token sees every other."""
    config = transformers.BertConfig(
        **SIZES, num_attention_heads=4, max_position_embeddings=64, pad_token_id=0
    )
    return _made("BertForMaskedLM", config)


def t5() -> Any:
    """Reads one text and writes another."""
    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=1,
        eos_token_id=95,
    )  # fmt: skip
    return _made("T5ForConditionalGeneration", config)


def bloom() -> Any:
    """Computes attention itself, without the registry."""
    config = transformers.BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4)
    return _made("BloomForCausalLM", config)


MODELS: dict[str, Callable[[], Any]] = {
    "llama": llama, "mistral": mistral, "gpt2": gpt2, "gemma2": gemma2, "bert": bert,
}  # fmt: skip


def some_ids(n: int = 13, seed: int = 1) -> torch.Tensor:
    return torch.randint(3, 96, (1, n), generator=torch.Generator().manual_seed(seed))


def printed(table: Any) -> str:
    """What a Rich table looks like in a terminal."""
    from rich.console import Console

    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


@contextmanager
def edited_weights(model: Any, allowed: dict[Any, torch.Tensor], part: Any = None):
    """Run a model's eager attention; in each layer named, weights that are not allowed become 0 and the rest
    of their row is divided by its sum. Layers are numbers, or names of modules; `part` is in whose file the
    attention is, where that is not the model's."""
    module = sys.modules[type(part or model).__module__]
    before = module.eager_attention_forward
    names = {id(layer): name for name, layer in model.named_modules()}

    def edited(layer, query, key, value, attention_mask, **kwargs):
        _, weights = before(layer, query, key, value, attention_mask, **kwargs)
        everything = torch.ones(1, dtype=torch.bool)
        number = getattr(layer, "layer_idx", None)
        kept = weights * allowed.get(names[id(layer)], allowed.get(number, everything))
        total = kept.sum(-1, keepdim=True)
        kept = torch.where(total > 0, kept / total.clamp(min=1e-30), 0.0)
        value = value.repeat_interleave(kept.shape[1] // value.shape[1], 1)
        return (kept @ value).transpose(1, 2).contiguous(), kept

    module.eager_attention_forward = edited
    try:
        with torch.no_grad():
            yield
    finally:
        module.eager_attention_forward = before
