"""Importance over a corpus: what the loss grows by without a head, on average over some documents."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console
from transformers import BertConfig, BertModel

import regard
from regard import corpus
from regard.corpus import Settings
from regard.corpus.reading import Reader
from regard.errors import CorpusError
from regard.models import load_model

SETTINGS = Settings(shard=4, batch=100, importance=3)


@pytest.fixture(scope="module")
def texts(tmp_path_factory, stories):
    """The first readable documents, one of a single word among them."""
    path = tmp_path_factory.mktemp("few") / "few.jsonl"
    path.write_text("\n".join(stories.read_text(encoding="utf-8").splitlines()[:5]), encoding="utf-8")
    return path


def test_it_is_the_mean_over_every_third_document(tiny_model, texts):
    made = corpus.run(tiny_model, texts, settings=SETTINGS)
    loaded = load_model(str(tiny_model))
    wanted = []
    for number, line in enumerate(texts.read_text(encoding="utf-8").splitlines()):
        ids = loaded.tokenizer(json.loads(line)["text"])["input_ids"][
            : loaded.model.config.max_position_embeddings
        ]
        if number % 3 == 0 and len(ids) > 1:
            found = regard.importance(loaded.model, torch.tensor([ids]))
            wanted.append([effect.loss_change for effect in found.effects])
    assert len(wanted) > 0
    means = torch.tensor(wanted, dtype=torch.float64).mean(0)
    for head, value in zip(made.heads, means.tolist(), strict=True):
        found = head.measures["importance"]
        assert found.documents == len(wanted)
        assert found.value == pytest.approx(value, rel=1e-6, abs=1e-12)
    console = Console(width=100)
    with console.capture() as said:
        console.print(made.table())
    assert "cut costs" in said.get()


def test_there_is_none_unless_asked_for(tiny_model, texts):
    made = corpus.run(tiny_model, texts, settings=Settings(shard=4, batch=100))
    assert {head.measures["importance"].value for head in made.heads} == {None}
    console = Console(width=100)
    with console.capture() as said:
        console.print(made.table())
    assert "cut costs" not in said.get()


def test_a_model_without_a_loss_is_refused_before_anything_is_read():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
    reader = Reader(BertModel(BertConfig(vocab_size=50, **sizes)).eval(), 64)
    with pytest.raises(CorpusError, match=r"importance"):
        reader.check_importance()


def test_every_minus_second_document_is_no_setting():
    with pytest.raises(CorpusError, match=r"importance is -2; wanted 10 for every tenth document, or 0"):
        Settings(importance=-2)
