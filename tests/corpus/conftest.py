"""A tiny random Llama with a tokenizer, and small corpora, made once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from corpora import WORDS, text_of


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """The folder of a model with 2 layers of 4 heads, context 64, that reads words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    vocabulary = {word: number for number, word in enumerate(["<unk>", *dict.fromkeys(WORDS)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.6,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def stories(tmp_path_factory) -> Path:
    """23 readable documents of 1 to 90 words, longer ones than the context among them; 4 that are not."""
    path = tmp_path_factory.mktemp("stories") / "stories.jsonl"
    lines = [json.dumps({"text": text_of(n, 1 + 37 * n % 90)}) for n in range(23)]
    lines[5:5] = ["{nope", '{"txt": "other"}', '{"text": 7}', "", '{"text": "  "}']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
