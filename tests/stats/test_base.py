"""What all statistics have in common: names, states, and the refusals."""

from __future__ import annotations

import copy
import dataclasses
import re

import pytest
import torch

import regard.stats
from regard.errors import StatisticError
from regard.stats import (
    KL,
    ColumnMass,
    ColumnMax,
    ColumnStatistic,
    Custom,
    Decay,
    Entropy,
    HeadDivergence,
    HeadSum,
    Histogram,
    MaxScore,
    MeanDistance,
    NormWeighted,
    Pooled,
    ReceptiveWindow,
    SegmentMass,
    SinkMass,
    SinkRate,
    Statistic,
    Student,
    TopK,
    ValueWeighted,
    VerticalSlash,
    WindowedMass,
    by_name,
    find_result,
)
from stats.harness import dense_map, in_one, observed


class Indifferent(Student):
    """Gives every pair the same score, whatever the size of the map."""

    def tile(self, batch, rows, cols):
        return torch.zeros(len(batch), len(rows), len(cols))

    def parameters(self):
        return ()

    def on(self, tensors):
        return self

    def check(self, batch, q, k):
        pass


EVERY = [
    KL(Indifferent()),
    ColumnMass(normalise=True),
    ColumnMass(last=3),
    ColumnMax(),
    Custom(lambda tile: tile.weights.sum(-1), over="rows"),
    Decay(),
    Entropy(),
    HeadDivergence(),
    HeadSum(2),
    Histogram(),
    MaxScore(),
    MeanDistance(),
    NormWeighted(torch.ones(2, 3, 4, dtype=torch.float64)),
    Pooled(4, how="both"),
    ReceptiveWindow(),
    SegmentMass.bins(3, 7),
    SinkMass(),
    SinkRate(),
    TopK(3),
    ValueWeighted(),
    VerticalSlash(3),
    WindowedMass(2),
]


def tensors(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def test_every_statistic_is_tested_here():
    exported = {getattr(regard.stats, name) for name in regard.stats.__all__}
    kinds = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, Statistic)}
    assert {type(statistic) for statistic in EVERY} == kinds - {Statistic, ColumnStatistic}


@pytest.mark.parametrize("statistic", EVERY, ids=lambda s: s.name)
def test_a_statistic_is_a_frozen_dataclass_with_a_name(statistic):
    assert dataclasses.is_dataclass(statistic)
    assert statistic.name.isidentifier()
    assert statistic.name == statistic.name.lower()
    with pytest.raises(dataclasses.FrozenInstanceError):
        statistic.k = 3


@pytest.mark.parametrize("statistic", EVERY, ids=lambda s: s.name)
def test_an_empty_state_changes_nothing_when_merged(statistic):
    dense = dense_map(0, 1, 2, 5, 7, kind="causal")
    state = statistic.init(dense.frame)
    for tile in dense.whole():
        statistic.update(state, tile)
    expected = tensors(statistic.finish(copy.deepcopy(state), dense.frame))
    for merged in (
        statistic.merge(state, statistic.init(dense.frame)),
        statistic.merge(statistic.init(dense.frame), state),
    ):
        for found, wanted in zip(tensors(statistic.finish(merged, dense.frame)), expected, strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("statistic", EVERY, ids=lambda s: s.name)
@pytest.mark.parametrize(("q", "k"), [(0, 7), (3, 0), (0, 0)])
def test_a_map_without_cells_has_finite_statistics_of_the_right_rank(statistic, q, k):
    frame = dense_map(0, 1, 2, q, k).frame
    result = statistic.finish(statistic.init(frame), frame)
    expected = in_one(statistic, dense_map(0, 1, 2, 5, 7))
    assert [x.ndim for x in tensors(result)] == [x.ndim for x in tensors(expected)]
    assert not any(x.isnan().any() for x in tensors(result))


@pytest.mark.parametrize("statistic", EVERY, ids=lambda s: s.name)
def test_a_map_in_which_every_row_is_dead_has_no_nan(statistic):
    dense = dense_map(0, 1, 2, 5, 7)
    state = statistic.init(dense.frame)
    assert not any(x.isnan().any() for x in tensors(statistic.finish(state, dense.frame)))


@pytest.mark.parametrize("statistic", EVERY, ids=lambda s: s.name)
def test_floating_results_have_the_dtype_of_the_map(statistic):
    dense = dense_map(0, 1, 2, 5, 7)
    dense.weights, dense.scores, dense.values = (
        x.float() for x in (dense.weights, dense.scores, dense.values)
    )
    for x in tensors(observed(statistic, dense, 0)):
        assert x.dtype in (torch.float32, torch.int64)


@pytest.mark.parametrize("statistic", EVERY, ids=lambda s: s.name)
def test_a_tile_is_only_read_except_for_log_weights_a_statistic_says_it_spoils(statistic):
    dense = dense_map(0, 1, 2, 65, 130, kind="causal")
    if isinstance(statistic, SegmentMass):
        statistic = SegmentMass.bins(3, 130)
    (tile,) = dense.whole()
    before = tile.weights.clone(), tile.scores.clone(), tile.log_weights.clone(), tile.allowed.clone()
    statistic.update(statistic.init(dense.frame), tile)
    names = ("weights", "scores", "log_weights", "allowed")
    for name, wanted in zip(names, before, strict=True):
        kept = torch.equal(getattr(tile, name), wanted)
        assert kept is not (name == "log_weights" and statistic.spoils_log_weights)


def test_results_do_not_share_memory_with_tiles():
    dense = dense_map(0, 1, 1, 5, 7)
    (tile,) = dense.whole()
    mass = ColumnMass()
    state = mass.init(dense.frame)
    mass.update(state, tile)
    tile.weights.zero_()
    assert state["sums"].sum() == pytest.approx(5)


def test_statistics_are_keyed_by_their_noun_in_snake_case():
    assert list(by_name((Entropy(), TopK(3), ColumnMass()))) == ["entropy", "top_k", "column_mass"]


def test_a_renamed_statistic_is_keyed_by_its_new_name_and_leaves_the_old_one_alone():
    pooled = Pooled(4)
    renamed = pooled.named("overview")
    assert (renamed.name, renamed.size, pooled.name) == ("overview", 4, "pooled")
    assert list(by_name((pooled, renamed))) == ["pooled", "overview"]


def test_a_name_that_is_no_identifier_is_refused():
    message = "name 'two words' is not an identifier; results are read as attributes."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        Entropy().named("two words")


def test_the_same_statistic_twice_is_refused():
    message = (
        "pooled is asked for twice: Pooled(size=4, how='mean') and Pooled(size=8, how='mean'). "
        "Rename one, for example Pooled(...).named('other')."
    )
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        by_name((Pooled(4), Pooled(8)))


@pytest.mark.usefixtures("as_users_run_it")
def test_a_class_in_place_of_a_statistic_is_refused_with_a_hint():
    message = f"stats holds {Entropy!r}, which is not a statistic. Did you mean Entropy()?"
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        by_name((Entropy,))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("given", ["entropy", "Entropy"])
def test_a_name_in_place_of_a_statistic_is_refused_with_a_hint(given):
    message = f"stats holds {given!r}, which is not a statistic. Did you mean Entropy()?"
    for stats in (given, [given]):
        with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
            by_name(stats)


def test_one_statistic_needs_no_list():
    assert by_name(Entropy()) == by_name([Entropy()]) == {"entropy": Entropy()}


@pytest.mark.parametrize("wanted", [TopK, TopK(3), "top_k"])
def test_a_result_is_found_by_the_statistic_its_class_or_its_name(wanted):
    results, asked = {"entropy": 1, "top_k": 2}, {"entropy": Entropy(), "top_k": TopK(3)}
    assert find_result(results, asked, wanted) == 2


def test_a_renamed_statistic_is_found_by_its_class():
    fine = Pooled(4).named("fine")
    assert find_result({"fine": 7}, {"fine": fine}, Pooled) == 7


def test_a_class_that_was_observed_twice_is_refused():
    asked = {"fine": Pooled(4).named("fine"), "coarse": Pooled(8).named("coarse")}
    message = "Pooled was observed 2 times, as fine, coarse; index with one of these names"
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}"):
        find_result({"fine": 1, "coarse": 2}, asked, Pooled)


def test_the_result_of_another_statistic_of_the_same_name_is_refused():
    message = "TopK(k=3) was not observed: top_k is that of TopK(k=5). Index with that, or observe again."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        find_result({"top_k": 1}, {"top_k": TopK(5)}, TopK(3))


@pytest.mark.parametrize(("wanted", "shown"), [(Entropy, "'Entropy'"), (SinkMass(2), "SinkMass(first=2)")])
def test_what_was_not_observed_is_refused_with_what_was(wanted, shown):
    message = f"{shown} was not observed; observed were: top_k. Ask for it in stats=[...]."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        find_result({"top_k": 1}, {}, wanted)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("k", [2.5, True, "8"])
def test_a_number_that_is_not_whole_is_refused(k):
    message = f"TopK got k={k!r}, a {type(k).__name__}; it must be a whole number."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        TopK(k)
