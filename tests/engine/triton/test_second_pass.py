"""Every statistic the kernels fold, against the torch backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.harness import every_mask
from engine.triton.test_forward import close, leaves
from regard import observe
from regard.engine import observing
from regard.engine.inputs import Options, problem_of
from regard.engine.riders import Riders, Streamed
from regard.engine.second_pass import summarise
from regard.engine.torch_backend.forward import forward
from regard.engine.triton.backend import TritonBackend, top_keys_asked
from regard.engine.triton.forward import launch as gpu_forward
from regard.masks import Causal, Dense, Documents, Window
from regard.stats import (
    ColumnMass,
    ColumnMax,
    Decay,
    Histogram,
    MaxScore,
    NormWeighted,
    Pooled,
    ReceptiveWindow,
    SegmentMass,
    SinkRate,
    TopK,
    ValueWeighted,
    VerticalSlash,
    by_name,
)

pytestmark = pytest.mark.usefixtures("_dirty_sums")
STATISTICS = {
    "column mass": ColumnMass(),
    "normalised column mass": ColumnMass(normalise=True),
    "weighted column mass": ColumnMass(rows=torch.linspace(0, 1, 40)),
    "column maxima": ColumnMax(),
    "column maxima of key heads": ColumnMax(per_key_head=True),
    "decay": Decay(signed=True),
    "decay without sinks": Decay(skip_keys=3),
    "decay in log bins": Decay(bins="log"),
    "small blocks": Pooled(8, "both"),
    "blocks of several tiles": Pooled(128, "both"),
    "histogram": Histogram(edges=(0.01, 0.1)),
    "histogram of scores": Histogram("score", (-1.0, 0.0, 1.0)),
    "receptive window": ReceptiveWindow(),
    "segments": SegmentMass.bins(3, 45),
    "sink rate": SinkRate(threshold=0.1),
    "one key": TopK(1),
    "five keys": TopK(5),
    "values": ValueWeighted(),
    "norms": NormWeighted(torch.eye(16).expand(2, 16, 16)),
    "lines": VerticalSlash(2),
}
CASES = ("none", "causal window", "ragged documents", "dense by head", "no key at all")


def same(got, wanted) -> None:
    """Tensors agree; whole numbers exactly."""
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, wanted)), strict=True):
        if a.is_floating_point():
            close(a, b)
        else:
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_gives_what_the_torch_backend_gives(name, device):
    statistic = STATISTICS[name].named("tested")
    given = leaves(device, 40, 45, batch=1, heads=2, kv_heads=1)
    for mask in (None, Causal() & Window(20), Dense(torch.rand(40, 45) < 0.3)):
        ours, truth = (observe(**given, mask=mask, stats=[statistic], backend=b) for b in ("triton", "torch"))
        same(ours.tested, truth.tested)


@pytest.mark.parametrize("name", CASES)
def test_sweeps_follow_every_kind_of_mask(name, device):
    asked = [ColumnMass(normalise=True), ColumnMax(), Decay(), Pooled(16, "both"), TopK(3)]
    given = leaves(device, 33, 65, heads=2, kv_heads=1)
    mask = every_mask(33, 65, 2, 2)[name]
    ours, truth = (observe(**given, mask=mask, stats=asked, backend=b) for b in ("triton", "torch"))
    for statistic in asked:
        same(getattr(ours, statistic.name), getattr(truth, statistic.name))


def test_bands_of_queries_add_up(device, monkeypatch):

    given = leaves(device, 300, 70, batch=1, heads=1)
    asked = [ColumnMass(), ColumnMax(), Decay(signed=True), Pooled(128, "both")]
    whole = observe(**given, stats=asked, backend="torch")
    from regard.engine.triton.second_pass import sweep

    monkeypatch.setattr(sweep, "BAND_BLOCKS", 2)
    monkeypatch.setattr(sweep, "CELL_BYTES", 1)
    bands = observe(**given, stats=asked, backend="triton")
    for statistic in asked:
        same(getattr(bands, statistic.name), getattr(whole, statistic.name))


def test_column_maxima_of_bands_are_those_of_the_map(device, monkeypatch):
    given = leaves(device, 300, 70, batch=1, heads=2)
    asked = [ColumnMax(), Pooled(64, "max")]
    whole = observe(**given, stats=asked, backend="torch")
    from regard.engine.triton.second_pass import sweep

    monkeypatch.setattr(sweep, "BAND_BYTES", 1)
    bands = observe(**given, stats=asked, backend="triton")
    for statistic in asked:
        same(getattr(bands, statistic.name), getattr(whole, statistic.name))


def test_of_equal_weights_the_earlier_keys_are_listed(device):
    x = torch.zeros(1, 1, 70, 16, device=device)
    seen = observe(x, x, x, mask=Window(20), stats=[TopK(2)], backend="triton")
    assert seen.top_k.key[0, 0].tolist() == [[max(0, i - 19), max(0, i - 19) + 1] for i in range(70)]


def test_what_the_forward_pass_told_is_not_asked_again(device):
    problem = problem_of(**leaves(device, 100, 130, batch=1, heads=2), options=Options())
    lse = forward(problem).lse
    asked = {"top": TopK(3), "peak": MaxScore(), "pooled": Pooled(128, "both")}
    truth = summarise(problem, lse, {**asked, "high": Pooled(64, "max")}, "torch")
    # Numbers that could not be computed from the inputs.
    told = Streamed(
        problem.v, lse, max_score=truth["peak"].value + 1, block_maxima=truth["high"] * 2, grain=64
    )
    got = summarise(problem, lse, asked, "triton", told)
    same(got["top"], truth["top"])
    same(got["peak"], (truth["peak"].value + 1, truth["top"].key[..., 0]))
    same(got["pooled"], (truth["pooled"].mean, truth["pooled"].max * 2))
    got = summarise(problem, lse, asked, "triton", replace(told, top_key=truth["top"].key + 1))
    same(got["peak"], (told.max_score, truth["top"].key[..., 0] + 1))
    # Without top keys the largest score has no key yet, and blocks that do not fit are swept.
    asked = {"peak": MaxScore(), "pooled": Pooled(32, "max")}
    truth = summarise(problem, lse, asked, "torch")
    got = summarise(problem, lse, asked, "triton", told)
    same(got["peak"], truth["peak"])
    same(got["pooled"], truth["pooled"])


def test_top_keys_that_the_forward_pass_told_are_taken_over(device, monkeypatch):
    given = leaves(device, 100, 130, batch=1, heads=2)
    asked = [TopK(3), TopK(2).named("fewer"), TopK(5).named("more"), MaxScore(), ColumnMass()]
    truth = observe(**given, stats=asked, backend="torch")
    attend = observing.attend

    def told(*args):
        # Numbers that could not be computed from the inputs.
        tops = {"top_weight": truth.top_k.weight * 2, "top_key": truth.top_k.key + 1}
        return replace(attend(*args), **tops)

    monkeypatch.setattr(observing, "attend", told)
    got = observe(**given, stats=asked, backend="triton")
    same(got.top_k, (truth.top_k.weight * 2, truth.top_k.key + 1))
    same(got.stats["fewer"], (truth.stats["fewer"].weight * 2, truth.stats["fewer"].key + 1))
    # Of fewer keys than were asked for nothing is taken over.
    same(got.stats["more"], truth.stats["more"])
    same(got.max_score, truth.max_score)
    same(got.column_mass, truth.column_mass)


@pytest.mark.parametrize(
    ("wanted", "asked"), [([], 0), ([3, 8, 16], 8), ([16, 20], 20), ([100], 0), ([100, 2], 2)]
)
def test_a_forward_pass_is_asked_for_as_many_top_keys_as_it_can_tell(wanted, asked):
    statistics = {str(k): TopK(k) for k in wanted}
    assert top_keys_asked({"columns": ColumnMass(), **statistics}) == asked


def test_a_sweep_writes_directly_to_the_target_of_a_single_fold():
    from regard.engine.triton.second_pass.folds import _direct_targets
    from regard.stats.folds import BlockFold, ColumnFold, DiagonalFold

    q, k, v = (torch.zeros(1, 2, n, 16) for n in (30, 40, 40))
    problem = problem_of(q, k, v, Options())
    columns, diagonals, sums = (torch.zeros(1, 2, *n) for n in ([40], [69], [4, 5]))
    alone = [ColumnFold(columns), DiagonalFold(diagonals), BlockFold(8, sums, None)]
    room = _direct_targets(problem, alone)
    assert room.columns is columns
    assert room.diagonals is diagonals
    assert room.pool_sums is sums
    crowded = _direct_targets(problem, [*alone, *alone])
    assert all(place is None for place in vars(crowded).values())
    part, wide = ColumnFold(torch.zeros(1, 2, 39)), ColumnFold(torch.zeros(1, 2, 80)[..., ::2])
    precise = DiagonalFold(diagonals.double())
    assert _direct_targets(problem, [part]).columns is None
    assert _direct_targets(problem, [wide]).columns is None
    assert _direct_targets(problem, [precise]).diagonals is None


def test_the_largest_score_is_the_heaviest_keys_where_that_was_told(monkeypatch):
    """No second pass is needed; but a sink may leave nothing to any key."""
    q, k, v = torch.randn(3, 1, 2, 9, 16).unbind()
    asked = by_name([MaxScore(), TopK(3)])
    weight, key = torch.rand(1, 2, 9, 3), torch.randint(9, (1, 2, 9, 3))
    for sink in (None, torch.zeros(2)):
        problem = problem_of(q, k, v, Options(sink=sink))
        room = gpu_forward._empty(problem, Riders(max_score=True, top_keys=3))
        assert (room.argmax is None) is (sink is not None)
        told = replace(room, max_score=torch.randn(1, 2, 9), top_weight=weight, top_key=key)
        if room.argmax is not None:
            room.argmax.copy_(key[..., 0])
        monkeypatch.setattr(observing, "attend", lambda *_, told=told: told)
        rest: list[str] = []
        monkeypatch.setattr(
            observing, "read_map", lambda *given, to=rest: {n: to.append(n) for n in given[3]}
        )
        _, found = observing._observed(problem, asked, "auto", TritonBackend())
        assert torch.equal(found["top_k"].key, key)
        assert rest == ([] if sink is None else ["max_score"])
        if sink is None:
            assert torch.equal(found["max_score"].value, told.max_score)
            assert torch.equal(found["max_score"].key, key[..., 0])


@pytest.mark.parametrize(("size", "how"), [(64, "max"), (64, "both"), (64, "mean"), (128, "both")])
def test_largest_weights_of_an_overviews_own_blocks_are_those_that_were_told(monkeypatch, size, how):
    q, k, v = torch.randn(3, 1, 2, 9, 16).unbind()
    told = Streamed(v, torch.zeros(1, 2, 9), block_maxima=torch.rand(1, 2, 1, 1), grain=64)
    asked: list[Pooled] = []
    monkeypatch.setattr(observing, "attend", lambda *_: told)
    monkeypatch.setattr(
        observing, "read_map", lambda *given: {n: asked.append(s) for n, s in given[3].items()}
    )
    statistics = by_name([Pooled(size, how).named("far"), ColumnMass()])
    problem = problem_of(q, k, v, Options())
    _, found = observing._observed(problem, statistics, "auto", TritonBackend())
    assert [*found] == ["far", "column_mass"]
    pooled = [s for s in asked if isinstance(s, Pooled)]
    if size == 64 and how != "mean":
        assert pooled == ([] if how == "max" else [Pooled(64)])
        assert (found["far"] if how == "max" else found["far"].max) is told.block_maxima
    else:
        assert pooled == [statistics["far"]]


def test_pairs_are_counted_where_only_some_rows_have_documents_in_one_piece(device):
    ids = torch.stack([torch.arange(45) % 3, torch.arange(45) // 20])
    asked = [ColumnMass(normalise=True), Decay(), Histogram(edges=(0.05,)), SinkRate(threshold=0.1)]
    for mask in (Documents(ids=ids), ~Documents(ids=ids) & Window(30), Causal() & Documents(ids=ids)):
        given = leaves(device, 40, 45, batch=2, heads=2, kv_heads=1)
        ours, truth = (observe(**given, mask=mask, stats=asked, backend=b) for b in ("triton", "torch"))
        for statistic in asked:
            same(getattr(ours, statistic.name), getattr(truth, statistic.name))


def test_the_borders_of_a_histogram_are_copied_to_the_device_once(device, monkeypatch):
    """Each copy would wait for the forward pass. Sweeps without a histogram copy nothing."""
    from regard.engine.triton.second_pass import sweep

    made = []
    monkeypatch.setattr(
        sweep, "_borders", lambda *given, make=sweep._borders: made.append(make(*given)) or made[-1]
    )
    given = leaves(device, 40, 45, batch=1, heads=1)
    for statistic in (ColumnMax(), Histogram(edges=(0.3, 0.6)), Histogram(edges=(0.3, 0.6)).named("again")):
        observe(**given, stats=[statistic], backend="triton")
    assert len(made) == 2
    assert made[0] is made[1]
