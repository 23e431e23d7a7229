"""Short observations that are like an earlier one run what is remembered of it; here they are held to it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.folded import where_kernels_are
from engine.harness import qkv
from regard import Causal, ColumnMass, Decay, Dense, Entropy, MaxScore, Pooled, TopK, Window, observe
from regard.engine.dispatch import short_observed
from regard.errors import MaskError, StatisticError
from regard.models.segment import tensors_of
from regard.scores import DotProduct
from regard.stats import ColumnMax, MeanDistance, SinkMass, Statistic, ValueWeighted
from strategies import held_masks, lengths, masks, shapes

pytestmark = where_kernels_are
ROWS = (Entropy(), MaxScore(), SinkMass(), MeanDistance())
MASKS = {"none": None, "causal": Causal(), "window": Causal() & Window(3), "shifted": Causal(-1) | Window(1)}
STATISTICS = {
    "none": (),
    "entropy": (Entropy(),),
    "rows": ROWS,
    "two column sums": (SinkMass(2), SinkMass(3).named("more")),
    "columns": (ColumnMass(), ColumnMax()),
    "counts": (Decay(), ColumnMass(normalise=True)),
    "all": (*ROWS, ColumnMass(), TopK(3), Decay()),
    "renamed": (ColumnMass().named("columns"), Entropy().named("spread")),
}


def known(x, mask, statistics, scale=None):
    """What is remembered of a call, once calls like it have been made."""
    for _ in range(2):
        found = short_observed(x["q"], x["k"], x["v"], mask, scale, statistics)
    return found


def ordinary(x, mask, statistics, scale=None):
    """The same call in the ordinary way, which any option takes."""
    return observe(**x, mask=mask, stats=statistics, scale=scale, score=DotProduct())


def assert_same_bits(found, seen):
    _, out, lse, stats = found
    assert torch.equal(out, seen.out)
    assert torch.equal(lse, seen.lse)
    assert list(stats) == list(seen.stats)
    for name, value in stats.items():
        assert all(map(torch.equal, tensors_of(value), tensors_of(seen.stats[name]))), name


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize(("q", "k"), [(4, 7), (5, 33), (65, 65)])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("statistics", STATISTICS.values(), ids=STATISTICS)
def test_what_is_remembered_has_the_bits_of_the_ordinary_way(statistics, mask, q, k, kv_heads):
    x = qkv(q, k, kv_heads=kv_heads)
    found = known(x, mask, statistics)
    if found is not None:
        assert_same_bits(found, ordinary(x, mask, statistics))


@pytest.mark.parametrize("statistics", [ROWS, STATISTICS["columns"], STATISTICS["counts"], STATISTICS["all"]])
def test_these_are_remembered(statistics):
    assert known(qkv(9, 9), Causal(), statistics) is not None


@given(st.data(), lengths(40), lengths(40), st.sampled_from([None, 0.3]))
def test_it_is_so_for_any_mask(data, q, k, scale):
    mask = data.draw(shapes(k))
    x = qkv(q, k, kv_heads=2)
    statistics = (Entropy(), ColumnMass()) if data.draw(st.booleans()) else ROWS
    found = known(x, mask, statistics, scale)
    if found is not None:
        assert_same_bits(found, ordinary(x, mask, statistics, scale))


@given(st.data(), lengths(33), lengths(33), st.sampled_from([*STATISTICS.values()]))
def test_it_is_so_for_masks_that_hold_tensors_and_for_any_statistics(data, q, k, statistics):
    x = qkv(q, k, kv_heads=data.draw(st.sampled_from([1, 2, 4])))
    mask = data.draw(st.one_of(masks(q, k, 2, 4), held_masks(q, k, 2, 4)))
    if any(isinstance(each, TopK) and each.k > k for each in statistics):
        return
    if data.draw(st.booleans()):
        x = {name: each.transpose(1, 2).contiguous().transpose(1, 2) for name, each in x.items()}
    found = known(x, mask, statistics)
    if found is not None:
        assert_same_bits(found, ordinary(x, mask, statistics))
        seen = observe(**x, mask=mask, stats=statistics)
        assert torch.equal(seen.map.lse, seen.lse)


def test_other_numbers_in_another_memory_layout_are_theirs():
    for seed in range(3):
        torch.manual_seed(seed)
        x = {name: torch.randn(2, 9, 4, 16).transpose(1, 2) for name in "qkv"}
        found = known(x, Causal(), STATISTICS["all"])
        assert found is not None
        assert_same_bits(found, ordinary(x, Causal(), STATISTICS["all"]))


def test_results_of_one_call_are_not_those_of_the_next():
    x = qkv(9, 9)
    first, second = (known(x, Causal(), STATISTICS["all"]) for _ in range(2))
    assert first is not None
    for name, value in first[3].items():
        for part in tensors_of(value):
            if part.is_floating_point():
                part.fill_(torch.nan)
        assert name == "decay" or not any(p.isnan().any() for p in tensors_of(second[3][name]))
    first[1].fill_(torch.nan)
    assert_same_bits(known(x, Causal(), STATISTICS["all"]), ordinary(x, Causal(), STATISTICS["all"]))


def test_the_first_of_its_kind_goes_the_ordinary_way():
    x = qkv(11, 13)
    assert short_observed(x["q"], x["k"], x["v"], None, 0.123, ROWS) is None


@pytest.mark.parametrize("name", "qkv")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_what_is_not_finite_goes_the_ordinary_way(name, value):
    x = qkv(9, 9)
    assert known(x, Causal(), ROWS) is not None
    x[name][0, 0, 3, 1] = value
    assert known(x, Causal(), ROWS) is None


def test_large_scores_are_read_in_float64_as_ever():
    x = qkv(9, 9)
    statistics = (Entropy(), ColumnMass())
    assert known(x, Causal(), statistics) is not None
    large = {**x, "q": x["q"] * 1000}
    assert known(large, Causal(), statistics) is None
    torch.testing.assert_close(
        observe(**large, mask=Causal(), stats=statistics).column_mass.sum(-1), torch.full((2, 4), 9.0)
    )


def test_gradients_go_the_ordinary_way():
    x = qkv(9, 9)
    assert known(x, Causal(), ROWS) is not None
    x["q"].requires_grad_()
    assert known(x, Causal(), ROWS) is None
    observe(**x, mask=Causal(), stats=ROWS).out.sum().backward()
    assert x["q"].grad is not None


class Own(Entropy):
    """A subclass whose `update` is new, so that its sums are not those of its parent."""

    def update(self, state, tile):
        state["sums"].fill_(7.0)


@pytest.mark.parametrize("statistic", [Own(), ValueWeighted(), Pooled(2), ColumnMass(last=2)])
def test_statistics_no_plan_knows_are_right_all_the_same(statistic):
    x = qkv(9, 9)
    first, *later = (observe(**x, mask=Causal(), stats=[statistic]) for _ in range(3))
    for seen in later:
        for name, value in seen.stats.items():
            assert all(map(torch.equal, tensors_of(value), tensors_of(first.stats[name])))


@pytest.mark.parametrize("stats", [[Entropy], [Entropy(), Entropy()], [TopK(10)], ["entropy"]])
def test_errors_are_those_of_the_ordinary_way_at_every_call(stats):
    for _ in range(3):
        with pytest.raises(StatisticError) as ours:
            observe(**qkv(9, 9), stats=stats)
        with pytest.raises(StatisticError) as theirs:
            ordinary(qkv(9, 9), None, stats)
        assert str(ours.value) == str(theirs.value)


def test_a_mask_that_was_written_to_is_refused():
    mask = Dense(torch.ones(9, 9, dtype=torch.bool).tril())
    x = qkv(9, 9)
    assert known(x, mask, ROWS) is not None
    mask.allowed[0, 5] = True
    with pytest.raises(MaskError, match="changed in place"):
        observe(**x, mask=mask, stats=ROWS)


def test_nothing_remembered_keeps_the_tensors_of_a_call_alive():
    x = qkv(9, 9)
    assert known(x, Causal(), STATISTICS["all"]) is not None
    held = [weakref.ref(each) for each in x.values()]
    x.clear()
    gc.collect()
    assert not any(each() is not None for each in held)


def test_an_observation_names_what_was_asked():
    x = qkv(9, 9)
    for _ in range(3):
        seen = observe(**x, mask=Causal(), stats=[TopK(2), Entropy()])
        assert seen[TopK(2)] is seen.top_k
        assert seen[Entropy] is seen.entropy
        assert isinstance(seen.asked["entropy"], Statistic)
        torch.testing.assert_close(seen.map.dense().sum(-1), torch.ones(2, 4, 9))
