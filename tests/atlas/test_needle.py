"""`needle`: the sentence is where it should be, and what heads give to it is what the dense map says."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atlas.small_models import llama, printed
from regard.atlas.haystack import Haystack, Needle, sentences
from regard.atlas.needle import NEEDLE, QUESTION, needle
from regard.errors import ModelError
from regard.models import bundled, sample_text, watch
from regard.models.hook import watchers


@pytest.fixture(scope="module")
def storyteller():
    return bundled()


def hay_of(storyteller, length=300, **changes):
    model, tokenizer = storyteller
    parts = {"sentence": NEEDLE, "question": QUESTION, **changes}
    return Haystack(model, tokenizer, sample_text(), Needle.of(**parts), length)


@given(st.text(alphabet="aB.!? \n\"'", min_size=1))
def test_sentences_joined_are_the_text_again(text):
    assert "".join(sentences(text)) == text


def test_a_sentence_ends_after_the_quote_that_closes_it():
    assert sentences('"Go." He went!  Mr. B') == ['"Go." ', "He went!  ", "Mr. ", "B"]


@pytest.mark.parametrize("depth", [0.0, 0.31, 0.5, 1.0])
def test_the_needle_and_its_answer_are_found_among_the_tokens(storyteller, depth):
    hidden, tokenizer = hay_of(storyteller).at(depth), storyteller[1]
    ids = hidden.ids[0].tolist()
    assert tokenizer.decode([ids[i] for i in hidden.needle]).strip() == NEEDLE
    assert tokenizer.decode([ids[i] for i in hidden.source]) == " Barnaby Thistle"
    assert tokenizer.decode([ids[i] for i in hidden.reply]) == " Barnaby Thistle"
    assert hidden.reply.stop == len(ids) <= 300


def test_depths_go_from_before_the_first_sentence_to_after_the_last(storyteller):
    hay, tokenizer = hay_of(storyteller), storyteller[1]
    first, last = (tokenizer.decode(hay.at(depth).ids[0], skip_special_tokens=True) for depth in (0.0, 1.0))
    assert first.startswith(NEEDLE)
    assert last.endswith(f"{NEEDLE}\n\n{QUESTION} Barnaby Thistle")
    assert [hay.at(depth).place for depth in (0.0, 1.0)] == [0.0, 1.0]
    assert hay.at(0.5).place == pytest.approx(0.5, abs=0.2)


def test_the_needle_stands_between_whole_sentences(storyteller):
    hay, tokenizer = hay_of(storyteller, 500), storyteller[1]
    for tenth in range(11):
        before = tokenizer.decode(hay.at(tenth / 10).ids[0], skip_special_tokens=True).partition(NEEDLE)[0]
        assert not before or before.rstrip()[-1] in ".!?\"'"


def test_the_control_is_the_same_text_without_the_needle(storyteller):
    hay, tokenizer = hay_of(storyteller), storyteller[1]
    control = tokenizer.decode(hay.without().ids[0], skip_special_tokens=True)
    hidden = tokenizer.decode(hay.at(0.5).ids[0], skip_special_tokens=True)
    assert hidden.replace(f"{NEEDLE} ", "") == control
    assert not hay.without().needle


@torch.no_grad()
def test_scores_are_those_of_the_dense_maps(storyteller):
    tokenizer = storyteller[1]
    model = llama(vocab_size=4096, max_position_embeddings=256)
    text = Haystack(model, tokenizer, sample_text(), Needle.of(NEEDLE, QUESTION), 200).at(0.5)
    test = needle(model, tokenizer, depths=[0.5], length=200)
    with watch(model) as recording:
        logits = model(input_ids=text.ids).logits[0].double().log_softmax(-1)
    rows = [place - 1 for place in text.reply]
    for layer, seen in recording.maps.items():
        weights = seen.dense()[0][:, rows]
        for scores, part in ((test.retrieval, text.needle), (test.copying, text.source)):
            wanted = weights[..., list(part)].sum(-1).mean(-1)
            assert torch.allclose(scores[0, layer], wanted, atol=1e-5)
    told = sum(float(logits[place - 1, text.ids[0, place]]) for place in text.reply)
    assert test.log_probability[0] == pytest.approx(told, rel=1e-4)
    assert test.chance == pytest.approx(len(text.needle) / text.reply.start)


def test_the_bundled_model_finds_its_needle_at_every_depth(storyteller):
    test = needle(*storyteller, depths=3, length=400)
    assert min(test.log_probability) > test.control + 15
    layer, _, score = test.heads(1)[0]
    assert layer in (5, 8)  # the two upper layers that see everything
    assert score > 5 * test.chance
    assert float(test.copying.max()) <= float(test.retrieval.max()) <= 1
    assert (test.copying <= test.retrieval + 1e-6).all()


def test_an_answer_of_ones_own_may_not_be_in_the_needle(storyteller):
    test = needle(*storyteller, depths=1, length=200, question="Who was the donkey?", answer=" A thistle.")
    assert test.copying.abs().max() == 0
    assert test.depths == (0.0,)


def test_progress_counts_the_control_too(storyteller):
    told = []
    needle(*storyteller, depths=2, length=150, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_the_model_is_as_it_was_afterwards(storyteller):
    model, tokenizer = storyteller
    before = model.config._attn_implementation
    needle(model, tokenizer, depths=1, length=150)
    assert model.config._attn_implementation == before
    assert not watchers


def test_a_result_is_plain_data_and_a_table(storyteller):
    test = needle(*storyteller, depths=2, length=150)
    data = json.loads(json.dumps(test.to_dict()))
    assert data["log_probability"] == list(test.log_probability)
    assert len(data["retrieval"]) == 2
    shown = printed(test.table())
    layer, head, _ = test.heads(1)[0]
    assert f"{layer}.{head}" in shown
    assert "100%" in shown
    assert f"{test.control:.2f} without the needle" in repr(test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 30}, "the needle, the question and the answer take 48 tokens and there is room for 30"),
        (
            {"needle": "x " * 70_000, "answer": "x"},
            "tokens and there is room for 65536; give a shorter needle",
        ),
        ({"length": 60}, "tokens of the haystack, and its first sentence is longer; give a greater length."),
        ({"length": 70_000}, "length is 70000; the model reads at most 65536 tokens. Ask for less."),
        (
            {"question": "What is it?"},
            "which leaves no answer; let the question end within the needle, or give",
        ),
        ({"needle": " "}, "the needle is '' and the question"),
        ({"haystack": ""}, "the haystack is empty; give a text of some sentences."),
        ({"depths": 0}, "depths is 0; wanted how many, at least 1, or fractions from 0 to 1."),
        ({"depths": [0.5, 2]}, "depths is [0.5, 2]; wanted how many"),
    ],
)
def test_a_test_that_cannot_be_made_is_refused(storyteller, options, message):
    with pytest.raises(ModelError) as caught:
        needle(*storyteller, **options)
    assert message in str(caught.value)


def test_a_tokenizer_that_knows_no_places_is_refused(storyteller):
    class Slow:
        is_fast = False

    with pytest.raises(ModelError, match="Slow cannot say where tokens stand in a text"):
        needle(storyteller[0], Slow())
