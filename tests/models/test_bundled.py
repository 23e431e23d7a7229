"""The bundled model loads offline and quickly, and the sample text fits it."""

from __future__ import annotations

import builtins
import json
import math
import re
import socket
import sys
import time
from collections import Counter

import pytest
import torch

from regard.errors import RegardError
from regard.models.bundled import DATA, bundled, sample_book, sample_text

WEIGHTS = DATA / "model.safetensors"
needs_weights = pytest.mark.skipif(
    not WEIGHTS.exists(), reason="MODEL WEIGHTS ARE MISSING: train them as training/README.md says"
)


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast.from_pretrained(DATA, local_files_only=True)


@pytest.fixture(scope="module")
def loaded():
    pytest.importorskip("transformers")
    return bundled()


def test_the_sample_text_is_two_thousand_tokens(tokenizer):
    assert 2000 <= len(tokenizer(sample_text()).input_ids) <= 2048


def test_the_sample_book_is_one_book_in_plain_ascii_that_fits_the_context(tokenizer):
    book = sample_book()
    assert book.isascii()
    assert len(tokenizer(book).input_ids) == 39_659
    assert re.findall(r"^CHAPTER ([IVX]+)\.", book, re.MULTILINE) == [
        "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
    ]  # fmt: skip
    assert book.rstrip().endswith("THE END")
    assert not re.search(r"gutenberg|copyright|illustration|millennium", book, re.IGNORECASE)


def test_names_and_phrases_of_the_sample_text_come_back():
    text = sample_text()
    assert (
        text.count("One for the river, two for the hill, and three for the wind when the wind stands still.")
        == 3
    )
    assert text.count("a ball of red string, a looking-glass, and half a seed cake") == 2
    assert min(map(text.count, ("Tamsin Merriwick", "Mr. Osgood", "Solomon Brock", "Gullstone Hill"))) >= 4


def test_the_sample_text_is_plain_ascii_so_that_tokens_and_characters_line_up():
    assert sample_text().isascii()


def test_tokens_give_the_sample_text_back(tokenizer):
    ids = tokenizer(sample_text()).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == sample_text()


def test_offsets_cut_the_text_into_the_tokens_it_was_read_as(tokenizer):
    text = sample_text()
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    assert "".join(text[a:b] for a, b in encoding.offset_mapping) == text


def test_every_text_begins_with_the_end_token(tokenizer):
    assert tokenizer("").input_ids == [0]
    assert tokenizer("Once").input_ids[0] == tokenizer.bos_token_id == tokenizer.eos_token_id == 0


@pytest.mark.parametrize("text", ["naïve 日本 🦊", "a\n\nb\nc\t d", " lead", "x" * 65])
def test_no_text_is_unknown_to_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


def test_typographic_marks_are_read_as_plain_ones(tokenizer):
    assert tokenizer("“Oh—it’s he!”").input_ids == tokenizer('"Oh--it\'s he!"').input_ids


def test_the_blank_line_between_paragraphs_is_one_token(tokenizer):
    assert len(tokenizer("\n\n", add_special_tokens=False).input_ids) == 1


def test_the_vocabulary_is_4096_tokens(tokenizer):
    assert len(tokenizer) == 4096


def test_texts_pad_into_a_batch(tokenizer):
    texts = ["Once", "Once upon a time there was"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    assert batch.attention_mask.sum(1).tolist() == [len(tokenizer(text).input_ids) for text in texts]
    assert batch.input_ids[0, -1] == tokenizer.pad_token_id


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "transformers":
            raise ImportError("No module named 'transformers'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    wanted = (
        "the bundled model needs transformers, which cannot be imported here "
        "(No module named 'transformers'). "
        "Install it with: pip install transformers"
    )
    with pytest.raises(RegardError, match=f"^{re.escape(wanted)}$"):
        bundled()


def test_an_incomplete_copy_names_the_files_it_lacks(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text("{}")
    # By its name among modules: `regard.models.bundled` is the function.
    monkeypatch.setattr(sys.modules["regard.models.bundled"], "DATA", tmp_path)
    wanted = (
        f"the bundled model lacks model.safetensors and tokenizer.json in {tmp_path}; this copy of regard is "
        "incomplete. Reinstall regard, or in a checkout make them as training/README.md says."
    )
    with pytest.raises(RegardError, match=f"^{re.escape(wanted)}$"):
        bundled()


@needs_weights
def test_the_model_loads_without_a_network_in_two_seconds(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(socket, "socket", None)
    bundled()  # what is imported on first use belongs to transformers, not to the model
    start = time.process_time()  # not the clock on the wall: other work on the machine is not the model's
    bundled()
    assert time.process_time() - start < 2


@needs_weights
def test_the_model_is_the_one_that_from_pretrained_gives(loaded, tmp_path):
    from transformers import SmolLM3ForCausalLM

    model, _ = loaded
    theirs = SmolLM3ForCausalLM.from_pretrained(DATA, dtype=torch.float32, local_files_only=True)
    assert model.config.to_dict() == theirs.config.to_dict()
    assert model.generation_config == theirs.generation_config
    assert (model.name_or_path, model.training) == (theirs.name_or_path, theirs.training)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    weights = theirs.state_dict()
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    model.save_pretrained(tmp_path)
    again = SmolLM3ForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(x, again[name]) for name, x in weights.items())


@needs_weights
def test_loading_draws_no_random_numbers():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    wanted = torch.rand(1)
    torch.manual_seed(0)
    bundled()
    assert torch.equal(torch.rand(1), wanted)


@needs_weights
def test_loading_shows_no_bar_and_leaves_other_bars_alone(capfd):
    logging = pytest.importorskip("transformers").utils.logging
    logging.enable_progress_bar()
    bundled()
    assert logging.is_progress_bar_enabled()
    assert capfd.readouterr().err == ""


@needs_weights
def test_what_the_wheel_carries_is_under_28_megabytes():
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 28_000_000


@needs_weights
def test_the_model_has_windows_and_global_layers_and_is_in_float32_ready_to_evaluate(loaded):
    model, tokenizer = loaded
    config = model.config
    assert (config.model_type, config.vocab_size, config.max_position_embeddings) == ("smollm3", 4096, 65536)
    assert (config.num_attention_heads, config.num_key_value_heads) == (6, 2)
    assert [i for i, kind in enumerate(config.layer_types) if kind == "full_attention"] == [2, 5, 8]
    assert [i for i, turns in enumerate(config.no_rope_layers) if not turns] == [2, 5, 8]
    assert (config.sliding_window, config.use_sliding_window) == (512, True)
    assert len(tokenizer) == config.vocab_size
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not model.training


@needs_weights
def test_the_model_reads_the_story_far_better_than_an_untrained_one(loaded):
    model, tokenizer = loaded
    ids = tokenizer(sample_text(), return_tensors="pt").input_ids
    with torch.no_grad():
        loss = float(model(ids, labels=ids).loss)
    assert loss < 0.5 * math.log(4096)


@needs_weights
def test_random_tokens_are_predicted_when_they_come_again(loaded):
    model, _ = loaded
    half = torch.randint(1, 4096, (1, 255), generator=torch.Generator().manual_seed(0))
    ids = torch.cat([torch.zeros(1, 1, dtype=torch.long), half, half], 1)
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="none")
    assert losses[255:].mean() < 0.35 * losses[:255].mean()


@needs_weights
def test_what_the_model_writes_is_mostly_english_words(loaded):
    model, tokenizer = loaded
    torch.manual_seed(0)
    prompt = tokenizer("Once upon a time", return_tensors="pt")
    text = tokenizer.decode(model.generate(**prompt, max_new_tokens=120, do_sample=True, temperature=0.8)[0])
    common = {
        "the",
        "and",
        "of",
        "to",
        "a",
        "he",
        "she",
        "was",
        "in",
        "that",
        "it",
        "his",
        "her",
        "had",
        "said",
    }
    words = Counter(re.findall(r"[a-z]+", text.lower()))
    assert sum(words[w] for w in common) > 0.2 * words.total()


@needs_weights
def test_the_model_card_reports_the_losses_of_the_run():
    card = (DATA / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "$" not in card
    rows = dict(re.findall(r"^\| \*{0,2}([\w -]+?)\*{0,2} \| (\d\.\d+) \|", card, re.MULTILINE))
    assert float(rows["this model"]) < float(rows["5-gram"]) < float(rows["bigram"])


def test_the_tokenizer_and_the_generation_settings_agree():
    settings = json.loads((DATA / "generation_config.json").read_text())
    assert settings == {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    vocabulary = json.loads((DATA / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert vocabulary["<|endoftext|>"] == 0
