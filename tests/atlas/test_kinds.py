"""Heads made by hand are recognised, each as what it is and as nothing else; random ones as nothing."""

from __future__ import annotations

import pytest
import torch

from atlas.builders import DELIMITER, HEADS, SHARP, code, head, pointer, story, words
from regard import AttentionMap, Causal, Padding, Window
from regard.atlas import cards_of
from regard.atlas.kinds import OF_ONE_TEXT
from regard.atlas.words import Words, is_delimiter

CAUSAL = Causal()


def scores(card):
    return {kind: finding.score for kind, finding in card.findings.items()}


def random_map(n, mask=CAUSAL):
    """Four query heads over two key heads."""
    return AttentionMap.of(torch.randn(1, 4, n, 16), torch.randn(1, 2, n, 16), mask=mask)


def test_there_is_a_head_made_by_hand_for_every_kind():
    assert list(HEADS) == [kind.name for kind in OF_ONE_TEXT]


@pytest.mark.parametrize("n", [1025, pytest.param(65536, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", HEADS)
def test_a_head_made_by_hand_is_of_its_kind_and_no_other(kind, n):
    (card,) = cards_of(head(kind, n), words=words(n))
    assert card.kinds == (kind,), scores(card)
    assert card.score(kind) > 0.6


@pytest.mark.parametrize("n", [63, 65, 1024])
@pytest.mark.parametrize("mask", [Causal(), Causal() & Window(48)], ids=repr)
def test_random_queries_and_keys_are_of_no_kind(n, mask):
    for card in cards_of(random_map(n, mask=mask), words=words(n)):
        assert card.kinds == (), scores(card)


def test_an_even_spread_scores_nothing_but_uniform():
    n = 513
    (card,) = cards_of(head("uniform", n), words=words(n))
    left = {kind: score for kind, score in scores(card).items() if kind != "uniform"}
    assert left.pop("alignment") is None
    assert max(left.values()) < 1e-4
    assert card.score("uniform") > 0.999


def test_every_score_is_between_0_and_1():
    n = 257
    for kind in HEADS:
        for card in cards_of(head(kind, n), words=words(n)):
            assert all(score is None or 0 <= score <= 1 for score in scores(card).values())


def test_all_heads_of_a_layer_are_read_at_once_as_they_are_one_by_one():
    n = 257
    q, k = torch.randn(1, 4, n, 16), torch.randn(1, 2, n, 16)
    together = cards_of(AttentionMap.of(q, k, mask=Causal()), words=words(n))
    for index, card in enumerate(together):
        part = AttentionMap.of(q[:, index : index + 1], k[:, index // 2 : index // 2 + 1], mask=Causal())
        (alone,) = cards_of(part, words=words(n))
        for kind, score in scores(alone).items():
            assert card.score(kind) == pytest.approx(score, abs=1e-6), kind


def test_two_readings_are_equal_to_the_last_bit():
    n = 257
    seen = random_map(n)
    assert cards_of(seen, words=words(n)) == cards_of(seen, words=words(n))


def test_a_head_may_be_of_several_kinds():
    n = 513
    half = AttentionMap.of(*(torch.cat(x, -1)[None, None] for x in zip(*pair(n), strict=True)), mask=Causal())
    (card,) = cards_of(half, words=words(n))
    assert {"previous token", "first-token sink"} <= set(card.kinds)


def pair(n):
    """The previous-token head and the sink, blended until both weigh the same."""
    one, other = HEADS["previous token"](n), HEADS["first-token sink"](n)
    scale = (one[0].shape[1] * 2) ** 0.5
    return (scale * one[0], one[1]), (scale * other[0], other[1])


def test_the_evidence_says_what_was_seen():
    n = 513
    expected = {
        "previous token": "1.00 of the weight is on the token before",
        "first-token sink": "1.00 of the weight is on the first token",
        "strided": "of the weight is on every 9th key: distances 9, 18, …",
        "delimiter": f"of the weight is on {int((story(n)[1:] == DELIMITER).sum())} delimiters",
        "local": "of the weight is on keys nearer than 32, not counting distance",
        "uniform": "its queries use 100% of the keys they may see",
    }
    for kind, words_said in expected.items():
        (card,) = cards_of(head(kind, n), words=words(n))
        assert words_said in card.evidence[kind]


@pytest.mark.parametrize("distance", [2, 37, 300])
def test_a_single_slash_is_strided_and_its_distance_is_named(distance):
    n = 1024
    q, k = pointer((torch.arange(n) - distance).clamp(min=-1))
    (card,) = cards_of(AttentionMap.of(q[None, None], k[None, None], mask=Causal(), scale=1.0))
    assert card.kinds == ("strided",)
    assert card.evidence["strided"].endswith(f"is on distance {distance}")


def test_an_encoder_that_looks_ahead_has_a_slash_at_distance_minus_one():
    n = 257
    q, k = pointer((torch.arange(n) + 1).clamp(max=n - 1))
    (card,) = cards_of(AttentionMap.of(q[None, None], k[None, None], scale=1.0), "encoder", words=words(n))
    assert card.kinds == ("strided",)
    assert card.evidence["strided"].endswith("is on distance -1")


def test_cross_attention_has_no_kinds_of_distance():
    q, k = torch.zeros(1, 1, 33, 4), torch.zeros(1, 1, 65, 4)
    source, target = story(65), story(33)
    given = Words(target, source, source == DELIMITER)
    (card,) = cards_of(AttentionMap.of(q, k), "cross", words=given)
    for kind in ("previous token", "self", "local", "strided", "retrieval"):
        assert card.score(kind) is None
        assert "two texts" in card.findings[kind].evidence
    assert card.kinds == ("uniform",)
    assert card.score("induction") == pytest.approx(0, abs=1e-6)


def test_cross_attention_that_copies_is_a_duplicate_token_head():
    n = 65
    ids = torch.randperm(n)
    place = torch.empty_like(ids)
    place[ids] = torch.arange(n)
    k = code(torch.arange(n))
    q = SHARP * k[place[torch.arange(33)]]
    (card,) = cards_of(
        AttentionMap.of(q[None, None], k[None, None], scale=1.0), "cross", words=Words(torch.arange(33), ids)
    )
    assert card.kinds == ("duplicate token",)


def test_without_tokens_kinds_that_need_them_have_no_score_and_say_why():
    (card,) = cards_of(head("previous token", 257))
    assert card.kinds == ("previous token",)
    for kind in ("duplicate token", "induction"):
        assert card.score(kind) is None
        assert card.findings[kind].evidence == "no token ids were given"
    assert card.findings["delimiter"].evidence == "no delimiters were given"


def test_a_text_of_one_token_repeated_says_nothing_about_repeats():
    n = 257
    same = torch.full((n,), 5)
    (card,) = cards_of(head("previous token", n), words=Words(same, same, same == 0))
    assert card.kinds == ("previous token",)
    assert "an even spread already has 0.9" in card.findings["duplicate token"].evidence
    assert "an even spread already has 0.9" in card.findings["induction"].evidence
    assert card.findings["delimiter"].evidence == "the text has no delimiters after its first token"


@pytest.mark.parametrize("n", [1, 2, 9])
def test_a_text_too_short_to_judge_has_no_kinds_and_says_why(n):
    (card,) = cards_of(head("previous token", n), words=words(n))
    assert card.kinds == ()
    assert set(scores(card).values()) == {None}
    assert all(finding.evidence for finding in card.findings.values())


def test_a_sink_logit_leaves_kinds_of_the_rest_in_proportion():
    n = 257
    q, k = HEADS["previous token"](n)
    options = {"mask": Causal(), "scale": 1.0}
    plain = AttentionMap.of(q[None, None], k[None, None], **options)
    half = AttentionMap.of(q[None, None], k[None, None], **options, sink=plain.lse[0, :, -1])
    (card,) = cards_of(half, words=words(n))
    assert card.findings["previous token"].weight == pytest.approx(0.5, abs=0.01)


def test_left_padding_moves_the_first_token():
    n, pad = 257, 5
    k = torch.zeros(n, 1)
    k[pad] = 1.0
    mask = Causal() & Padding(torch.arange(n) >= pad)
    seen = AttentionMap.of(torch.full((1, 1, n, 1), 50.0), k[None, None], mask=mask, scale=1.0)
    (card,) = cards_of(seen, words=words(n))
    assert card.kinds == ("first-token sink",)
    assert f"(key {pad})" in card.evidence["first-token sink"]


@pytest.mark.parametrize("text", ["!?", "…", " ;", "\n\n", "[SEP]", "<|endoftext|>", ""])
def test_marks_between_words_are_delimiters(text):
    assert is_delimiter(text)


@pytest.mark.parametrize("text", ["a.", "1", " ", "$", "[x]"])
def test_words_numbers_and_spaces_are_not_delimiters(text):
    assert not is_delimiter(text)
