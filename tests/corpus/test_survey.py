"""A corpus says of each text what the atlas says of that text alone."""

from __future__ import annotations

import math

import pytest
import torch

from regard.atlas import atlas
from regard.atlas.kinds import OF_ONE_TEXT
from regard.atlas.words import words_of
from regard.corpus.reading import Reader
from regard.corpus.state import MEASURES
from regard.corpus.survey import survey
from regard.models import bundled, record, sample_text

SAME = {"entropy": "entropy", "mean_distance": "mean_distance", "sink_share": "sink_mass"}


@pytest.fixture(scope="module")
def loaded():
    return bundled()


@pytest.mark.parametrize("cells", [1, 1 << 15, 1 << 25])
def test_packed_texts_have_the_atlas_that_each_has_alone(loaded, cells, monkeypatch):
    model, tokenizer = loaded
    monkeypatch.setattr("regard.corpus.survey.tallies.__defaults__", (cells,))
    story = sample_text()
    texts = [story[:211], story[300:650]]
    ids = [tokenizer(text)["input_ids"] for text in texts]
    reader = Reader(model)
    assert reader.packs, reader.refusal
    for text, maps in zip(texts, reader.read(ids), strict=True):
        alone = record(loaded, text, stats=())
        found = survey(maps, "decoder", words_of(alone, alone.layers[0]))
        for place, card in enumerate(atlas(alone).heads):
            for row, kind in enumerate(OF_ONE_TEXT):
                ours, theirs = float(found.scores[row, place]), card.score(kind.name)
                assert math.isnan(ours) if theirs is None else ours == pytest.approx(theirs, abs=2e-5)
            for ours, theirs in SAME.items():
                value = float(found.measures[MEASURES.index(ours), place])
                assert value == pytest.approx(card.statistics[theirs], rel=1e-4, abs=1e-5)


@pytest.fixture(scope="module")
def one(loaded):
    """The dense maps of one text in float64, its ids, and its survey."""
    text = sample_text()[:333]
    recording = record(loaded, text, stats=())
    found = survey(
        [layer.map for layer in recording.layers.values()],
        "decoder",
        words_of(recording, recording.layers[0]),
    )
    weights = torch.cat([layer.map.dense()[0] for layer in recording.layers.values()]).double()
    return recording, weights, recording.token_ids["decoder"][0].tolist(), found


def test_strongest_cells_are_those_of_the_dense_map(one):
    recording, weights, _, found = one
    norms = torch.cat(
        [layer.map.problem.v[0].norm(dim=-1).repeat_interleave(3, 0) for layer in recording.layers.values()]
    )
    strength = weights * norms.double()[:, None]
    strength[:, :, :4] = 0
    best, key = strength.max(-1)
    value, query = best.topk(4, 1)
    assert torch.equal(found.query, query)
    assert torch.equal(found.key, key.gather(1, query))
    torch.testing.assert_close(found.strength, value, rtol=1e-5, atol=1e-6)
    heads = torch.arange(len(weights))[:, None]
    torch.testing.assert_close(found.weight, weights[heads, found.query, found.key], rtol=1e-5, atol=1e-6)


def test_spans_follow_their_definition(one):
    _, weights, ids, found = one
    rows = [
        (i, [j + 1 for j in range(1, i) if ids[j - 1 : j + 1] == ids[i - 1 : i + 1]])
        for i in range(1, len(ids) - 1)
    ]
    rows = [(i, after) for i, after in rows if after]
    assert len(rows) > 3
    mass = torch.stack([weights[:, i, after].sum(-1) for i, after in rows]).mean(0)
    hits = torch.stack(
        [torch.tensor([ids[k] == ids[i + 1] for k in weights[:, i].argmax(-1)]).double() for i, _ in rows]
    )
    torch.testing.assert_close(found.measures[MEASURES.index("span_induction")], mass, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.measures[MEASURES.index("span_copy")], hits.mean(0))


def test_decay_counts_every_pair_in_its_octave(one):
    _, weights, _, found = one
    n = weights.shape[-1]
    distance = torch.arange(n)[:, None] - torch.arange(n)
    for octave in range(10):
        low, high = (0, 0) if octave == 0 else (2 ** (octave - 1), 2**octave - 1)
        pairs = (distance >= low) & (distance <= high)
        assert (found.decay_count[:, octave] == int(pairs.sum())).all()
        sums = (weights * pairs).sum((-1, -2))
        torch.testing.assert_close(found.decay_sum[:, octave], sums, rtol=1e-4, atol=1e-5)


def test_profile_is_that_of_the_last_queries(one):
    _, weights, _, found = one
    n = weights.shape[-1]
    rows = weights[:, n - n // 16 :].mean(1)
    tenth = torch.arange(n) * 10 // n
    for place in range(10):
        torch.testing.assert_close(
            found.profile[:, place], rows[:, tenth == place].sum(-1), rtol=1e-4, atol=1e-6
        )


def test_every_query_with_a_choice_is_in_the_histogram_of_entropies(one):
    _, weights, _, found = one
    n = weights.shape[-1]
    assert found.entropy.sum(-1).tolist() == [n - 1] * len(weights)
    share = torch.special.entr(weights).sum(-1)[:, 1:] / torch.arange(2, n + 1).log()
    low = (share < 0.5).sum(-1)
    near = ((share - 0.5).abs() < 1e-5).sum(-1)
    assert ((found.entropy[:, :10].sum(-1) - low).abs() <= near).all()
