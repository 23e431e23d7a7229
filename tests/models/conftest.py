"""Tiny models that every test here may use."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    # transformers and what it imports warn about themselves.
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()


def tiny_llama(**changes: Any) -> Any:
    """A Llama of two layers, four query heads and two key heads."""
    sizes = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**sizes, **heads, **ids, **changes})
    return transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()


def tiny_t5() -> Any:
    """A T5: encoder, decoder and cross-attention, each with two layers."""
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4,
        decoder_start_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration._from_config(config, attn_implementation="eager").eval()


@pytest.fixture
def llama() -> Any:
    return tiny_llama()


@pytest.fixture
def t5() -> Any:
    return tiny_t5()


@pytest.fixture
def make_llama() -> Callable[..., Any]:
    return tiny_llama


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(3, 96, (2, 13), generator=torch.Generator().manual_seed(1))
