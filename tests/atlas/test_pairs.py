"""Heads that look from some tokens at others."""

from __future__ import annotations

import json

import pytest

from regard.atlas import bracket_pairs, paired_heads
from regard.errors import RecordingError
from regard.models import bundled, record

SAID = "“Come in,” said the fox (who was red). “I will,” said the owl (who was old) [and went in]. "


@pytest.fixture(scope="module")
def recording():
    return record(bundled(), SAID * 8)


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [
        (["(", "a", "[", "b", "]", ")"], [(4, 2), (5, 0)]),
        (['"', "a", '"', '"', "b", '."'], [(2, 0), (5, 3)]),
        (["“", "a", "‘", "b", "’", "”"], [(4, 2), (5, 0)]),
        (["(", "a", "]", "b"], []),
        (["()", ")"], []),
        (['"', "a", "\n", '"', "b", '"'], [(5, 3)]),
        ([], []),
    ],
)
def test_brackets_and_quotes_are_paired_as_they_nest(texts, pairs):
    assert bracket_pairs(texts) == pairs


def test_a_head_made_to_look_at_partners_is_found():
    import torch

    import regard
    from regard.atlas.kinds import Kind
    from regard.atlas.pairs import _findings
    from regard.atlas.tally import tally_of

    pairs = [(i, i // 3) for i in range(20, 60)]
    # Two heads: keys are one-hot, and the first head's queries point at their partners.
    keys = torch.eye(63).expand(1, 2, -1, -1)
    queries = torch.zeros(1, 2, 63, 63)
    for query, key in pairs:
        queries[0, 0, query, key] = 60.0
    made = regard.AttentionMap.of(queries, keys, mask=regard.Causal(), scale=1.0)
    one, other = _findings(tally_of(made), pairs, Kind("pairs", lambda *_: []))
    assert one.score == pytest.approx(1.0, abs=1e-6)
    assert other.score == pytest.approx(0.0, abs=1e-6)
    assert one.chance == pytest.approx(sum(1 / (i + 1) for i, _ in pairs) / len(pairs))


def test_weights_are_those_of_the_map(recording):
    texts = [token.text for token in recording.tokens]
    pairs = bracket_pairs(texts)
    assert len(pairs) == 40
    for one in (found := paired_heads(recording))[:3]:
        rows = recording.maps[one.layer][0, one.head]
        mean = sum(float(rows[q, k]) for q, k in pairs) / len(pairs)
        assert one.finding.weight == pytest.approx(mean, abs=1e-6)
    scores = [one.finding.score or 0.0 for one in found]
    assert scores == sorted(scores, reverse=True)


def test_words_are_paired_with_the_last_place_before(recording):
    found = paired_heads(recording, [("fox", "said"), ("old", "owl")])
    assert found[0].finding.queries == 16
    positions = paired_heads(recording, [(9, 2), (30, 4)])
    assert positions[0].finding.evidence == "only 2 queries could show it, and 16 are wanted"


def test_a_causal_head_cannot_see_the_next_token(recording):
    assert {one.finding.evidence for one in paired_heads(recording, "next")} == {
        "no query may see the key that it is paired with"
    }


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("fox", "wolf")], "the text has no word 'wolf'; name words as the text writes them."),
        ([(1, 10_000)], r"pairs holds \(1, 10000\); wanted two words, or two positions from 0 to "),
        ("verbs", "pairs='verbs' is not known; wanted brackets, next, or a list of pairs."),
    ],
)
def test_pairs_that_are_none_are_refused(recording, pairs, said):
    with pytest.raises(RecordingError, match=said):
        paired_heads(recording, pairs)


def test_the_command_prints_a_table_and_json(run, recording, tmp_path):
    path = tmp_path / "said.regard"
    recording.save(path)
    assert "partner, over 40 queries" in run("atlas", str(path), "--pairs", "brackets")[1]
    rows = json.loads(run("atlas", str(path), "--pairs", "fox:said", "--json")[1])
    assert len(rows) == sum(layer.map.shape[1] for layer in recording.layers.values())
    assert run("atlas", str(path), "--pairs", "zzz")[0] == 2
    assert "leave out --kind" in run("atlas", str(path), "--pairs", "next", "--kind", "self")[2]
