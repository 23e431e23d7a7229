"""Tokens know their place in the text."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from regard.errors import RegardError
from regard.models import Recording, Token, watch
from regard.models.tokens import tokens_of

TEXT = "a bad cab, a dab"


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and a few merges: enough for pieces longer than a letter, and for é, which takes two bytes."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate([*pieces, "ab", "ad"])}
    bpe = models.BPE(vocab=vocab, merges=[("a", "b"), ("a", "d")])
    built = Tokenizer(bpe)
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=built)


def test_tokens_stand_where_the_tokenizer_found_them(tokenizer):
    tokens = tokens_of(tokenizer, tokenizer(TEXT)["input_ids"], TEXT)
    assert "".join(token.text for token in tokens) == TEXT
    assert all(TEXT[token.start : token.stop] == token.text for token in tokens)
    assert tokens[3] == Token(tokenizer.convert_tokens_to_ids("ad"), "ad", 3, 5)


def test_without_the_text_the_decoded_text_counts(tokenizer):
    tokens = tokens_of(tokenizer, tokenizer("né ab")["input_ids"])
    assert "".join(token.text for token in tokens[:1]) == "n"
    assert tokens[-1].text == "ab"
    assert [token.start for token in tokens[1:]] == [token.stop for token in tokens[:-1]]


def test_generated_tokens_follow_the_text(tokenizer):
    ids = tokenizer(TEXT + " cab")["input_ids"]
    tokens = tokens_of(tokenizer, ids, TEXT)
    assert len(tokens) == len(ids)
    assert "".join(token.text for token in tokens) == TEXT + " cab"
    assert tokens[-1].stop == len(TEXT) + 4


def test_another_text_is_noticed(tokenizer):
    message = (
        r"the text has \d+ tokens and the recording \d+, and they differ at token 2; attach the very text"
    )
    with pytest.raises(RegardError, match=message):
        tokens_of(tokenizer, tokenizer(TEXT)["input_ids"], "a cab")


def test_a_recording_keeps_its_tokens_on_disk(make_llama, tokenizer, tmp_path):
    model = make_llama(vocab_size=300)
    inputs = tokenizer(TEXT, return_tensors="pt")
    with watch(model, tokenizer=tokenizer, text=TEXT) as recording:
        model(inputs["input_ids"])
    assert recording.tokens[3].text == "ad"
    recording.save(tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    assert read.tokens == recording.tokens
    assert read.text == TEXT
    assert read.tokenizer == recording.tokenizer == type(tokenizer).__name__


def test_tokens_of_generated_text_join_those_of_the_prompt(make_llama, tokenizer):
    model = make_llama(vocab_size=258)
    inputs = tokenizer(TEXT, return_tensors="pt")
    with watch(model) as recording:
        model.generate(**inputs, max_new_tokens=5, do_sample=False)
    recording.attach(tokenizer, TEXT)
    assert len(recording.tokens) == inputs["input_ids"].shape[1] + 4
    assert recording.tokens[3] == Token(tokenizer.convert_tokens_to_ids("ad"), "ad", 3, 5)


def test_without_a_tokenizer_there_are_ids_and_no_tokens(llama, ids, tmp_path):
    with watch(llama) as recording:
        llama(ids)
    with pytest.raises(RegardError, match=r"no tokenizer was given, .* recording.attach\(tokenizer, text\)"):
        _ = recording.tokens
    recording.save(tmp_path / "x.regard")
    assert torch.equal(Recording.open(tmp_path / "x.regard").token_ids["decoder"], ids)
