"""What several ranks observe is what one process observes."""

from __future__ import annotations

import pytest

from distributed.catalogue import MASKS
from distributed.parity import LAYOUTS
from distributed.statistics import STATS


@pytest.mark.share(3)
@pytest.mark.parametrize("stat", STATS)
def test_every_statistic_is_that_of_one_process(world, stat):
    for ranks, mask, layout, exchange in (
        (1, "causal", "contiguous", "gather"),
        (2, "causal", "head tail", "ring"),
        (3, "where", "unequal", "gather"),
        (4, "padding", "one has none", "ring"),
    ):
        given = {"mask": mask, "layout": layout, "exchange": exchange}
        world.run("distributed.statistics.matches", ranks, stat=stat, **given)


@pytest.mark.share(3)
@pytest.mark.parametrize("mask", MASKS)
def test_counts_and_diagonals_are_right_under_every_mask(world, mask):
    given = {"layout": "head tail", "exchange": "ring", "mask": mask}
    world.run("distributed.statistics.matches", 3, stat="log decay", **given)
    world.run("distributed.statistics.matches", 2, stat="normalised column mass", **given)


def test_all_statistics_share_a_call_with_every_option(world):
    world.run("distributed.statistics.together", 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_tile_of_the_map_is_read_on_every_rank(world, layout):
    world.run("distributed.statistics.reads", 3, layout=layout)


def test_ranks_that_read_different_tiles_all_hear_of_it(world):
    answers = world.run("distributed.statistics.reads_another_tile", 3)
    assert set(answers) == {answers[0]}
    assert answers[0].startswith("ranks disagree on the index of a read of the map")


def test_a_statistic_without_a_merge_is_refused(world):
    for text in world.run("distributed.statistics.has_no_merge", 2):
        assert text.startswith("Mute defines no merge, and each rank has seen only a part of the map.")


def test_ranks_that_ask_for_other_statistics_all_hear_of_it(world):
    answers = world.run("distributed.statistics.asks_for_others", 2)
    assert set(answers) == {answers[0]}
    assert "ranks disagree on the statistics of observe" in answers[0]


def test_large_scores_are_read_as_exactly_as_on_one_process(world):
    world.run("distributed.statistics.large_scores", 3)


def test_gradients_flow_through_what_is_observed(world):
    world.run("distributed.statistics.learns", 3)
