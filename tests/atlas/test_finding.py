"""When a kind has a score, and what it is."""

from __future__ import annotations

import pytest
import torch

from regard.atlas.kinds.finding import MOST_CHANCE, QUERIES, Finding, Kind, lifted

KIND = Kind("self", lambda tally, kind: [])


def judged(weight: float, chance: float, queries: int = 20, sharpness: float = 0.0, **options) -> Finding:
    weights, chances, sharp = (torch.tensor([x], dtype=torch.float64) for x in (weight, chance, sharpness))
    return lifted(KIND, weights, chances, queries, lambda head: "seen", sharpness=sharp, **options)[0]


def test_a_kind_is_scored_up_to_half_of_the_weight_by_chance():
    assert MOST_CHANCE == 0.5
    assert judged(0.75, 0.5).score == 0.5
    above = judged(0.75, 0.5000001)
    assert above.score is None
    assert above.evidence == "an even spread already has 0.50 of its weight there"


def test_a_kind_is_scored_from_sixteen_queries_on():
    assert QUERIES == 16
    assert judged(0.5, 0.0, 16).score == 0.5
    few = judged(0.5, 0.0, 15)
    assert few.score is None
    assert few.evidence == "only 15 queries could show it, and 16 are wanted"


@pytest.mark.parametrize(("weight", "score"), [(0.1, 0.0), (0.2, 0.0), (0.6, 0.5), (1.0, 1.0), (1.01, 1.0)])
def test_a_score_is_the_share_of_what_chance_leaves_over(weight, score):
    found = judged(weight, 0.2)
    assert found.score == pytest.approx(score)
    assert (found.weight, found.chance, found.queries, found.evidence) == (weight, 0.2, 20, "seen")


def test_a_kind_is_found_from_its_bar_on():
    assert judged(0.25, 0.0).found
    assert not judged(0.2499, 0.0).found


def test_what_sharp_rows_at_random_places_reach_as_well_is_nothing_beyond_chance():
    # Four errors of √(0.1 · 0.9 / 25) = 0.06 above 0.1.
    within, beyond = judged(0.339, 0.1, 25, sharpness=1.0), judged(0.341, 0.1, 25, sharpness=1.0)
    assert (within.score, within.found) == (0.0, False)
    assert within.evidence == "seen; nothing beyond chance: a shuffled map reaches 0.34"
    assert beyond.score == pytest.approx(0.241 / 0.9)
    assert judged(0.339, 0.1, 2500, sharpness=1.0).found  # many queries do not agree by accident
    assert judged(0.339, 0.1, 25, sharpness=0.1).found  # nor do the weights of a broad row


def test_a_kind_that_chooses_among_places_must_beat_the_best_of_as_many_shuffled_ones():
    assert judged(0.4, 0.1, 25, sharpness=1.0).found
    assert judged(0.4, 0.1, 25, sharpness=1.0, tries=1000).score == 0.0


def test_shuffled_maps_may_reach_more_than_an_even_spread():
    assert judged(0.6, 0.01, 400, sharpness=1.0).found
    shuffled = torch.tensor([0.55])
    assert judged(0.6, 0.01, 400, sharpness=1.0, shuffled=shuffled).score == 0.0
    assert judged(0.9, 0.01, 400, sharpness=1.0, shuffled=shuffled).score == pytest.approx(0.89 / 0.99)
