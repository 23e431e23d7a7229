"""Every statistic: over random calls against the dense map, and over random cuts merged in random trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from choice import Choice, Seeded
from fuzzing.calls import Call, make_call
from fuzzing.target import Target
from regard import observe
from regard.masks import Dense
from regard.stats import (
    ColumnMass,
    Custom,
    Decay,
    Entropy,
    HeadDivergence,
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
    TopK,
    ValueWeighted,
    VerticalSlash,
)
from stats.harness import KINDS, DenseMap, dense_map, in_one, observed

__all__ = ["STATISTICS", "TREES"]

# What lies so near a threshold falls to either side of it.
NEAR = 1e-5
# Cells are sums of at most 129 weights in float32, and in float64.
ATOL = {torch.float32: 2e-4, torch.float64: 1e-9}


def make_statistic(choice: Choice, heads: int, k: int, v_dim: int) -> Statistic:
    """Any statistic, with any settings."""
    generator = torch.Generator().manual_seed(choice.seed())
    kinds: list[Callable[[], Statistic]] = [
        Entropy,
        MaxScore,
        MeanDistance,
        HeadDivergence,
        ValueWeighted,
        lambda: SinkMass(choice.integer(1, k + 2)),
        lambda: SinkRate(choice.integer(0, k - 1), choice.integer(1, 9) / 10 + 0.0123),
        lambda: SegmentMass.bins(choice.integer(1, min(k, 5)), k),
        lambda: ReceptiveWindow(choice.integer(1, 9) / 10 + 0.0123),
        lambda: NormWeighted(torch.randn(heads, v_dim, 3, generator=generator)),
        lambda: Pooled(choice.pick((1, 2, 5, 16, 64)), choice.pick(("mean", "max", "both"))),
        lambda: TopK(choice.integer(1, k)),
        lambda: VerticalSlash(choice.integer(1, min(k, 3))),
        lambda: Histogram(edges=(0.0123, 0.1234, 0.5678)),
        lambda: Histogram(of="score", edges=(-1.2345, 0.6789, 3.1415)),
        lambda: Decay(
            choice.pick(("linear", "log")),
            choice.integer(1, 5),
            skip_keys=choice.integer(0, k),
            signed=choice.flag(),
        ),
        lambda: ColumnMass(normalise=choice.flag()),
        lambda: Custom(lambda tile: tile.weights.square().sum((-2, -1))),
    ]
    return choice.pick(kinds)()


def dense_of(call: Call) -> DenseMap:
    """The call's map by the oracle, under a mask that is nothing but its matrix."""
    leaves = {name: x.double() for name, x in call.leaves.items()}
    steps = call.dense_steps(leaves)
    shape = steps.weights.shape
    allowed = torch.ones(shape, dtype=torch.bool) if call.allowed is None else call.allowed.expand(shape)
    values = leaves["v"].repeat_interleave(shape[1] // leaves["v"].shape[1], 1)
    return DenseMap(steps.weights, steps.scores, allowed, values, Dense(allowed))


def compare(statistic: Statistic, got: Any, dense: DenseMap, atol: float) -> None:
    """The same as over the dense map in one tile; what is decided by a threshold may fall to either side."""
    wanted = in_one(statistic, dense)
    what = f"{statistic!r}"
    if isinstance(statistic, TopK | MaxScore):
        value, of = (got.weight, dense.weights) if isinstance(statistic, TopK) else (got.value, dense.scores)
        key = got.key if isinstance(statistic, TopK) else got.key[..., None]
        close(value, wanted[0], atol, what)
        there = of.gather(-1, key.clamp(min=0)).masked_fill(key < 0, 0.0)
        value = value if isinstance(statistic, TopK) else value[..., None]
        close(there, value.masked_fill(key < 0, 0.0), atol, f"{what}: the weight of the key that is named")
    elif isinstance(statistic, VerticalSlash):
        close(got.key_share, wanted.key_share, atol, what)
        close(got.distance_share, wanted.distance_share, atol, what)
    elif isinstance(statistic, Histogram):
        assert torch.equal(got.counts.sum(-1), wanted.counts.sum(-1)), what
        edges = statistic.edges or ()
        low, high = (
            in_one(replace(statistic, edges=tuple(e + by for e in edges)), dense).counts.cumsum(-1)
            for by in (-NEAR, NEAR)
        )
        between(low, got.counts.cumsum(-1), high, what)
    elif isinstance(statistic, SinkRate):
        strict, loose = (
            in_one(replace(statistic, threshold=statistic.threshold + by), dense) for by in (NEAR, -NEAR)
        )
        between(strict, got, loose, what)
    elif isinstance(statistic, ReceptiveWindow):
        short, long = (in_one(replace(statistic, share=statistic.share + by), dense) for by in (-NEAR, NEAR))
        between(short, got, long, what)
    else:
        for ours, theirs in zip(_tensors(got), _tensors(wanted), strict=True):
            close(ours, theirs, atol, what)


def close(got: Tensor, wanted: Tensor, atol: float, what: str) -> None:
    assert got.shape == wanted.shape, (what, got.shape, wanted.shape)
    atol *= max(1.0, largest(wanted))
    same = torch.allclose(got.double(), wanted.double(), rtol=0, atol=atol, equal_nan=True)
    assert same, f"{what}\n{got}\n{wanted}"


def largest(x: Tensor) -> float:
    """The largest size of what is finite."""
    return x.double().abs().nan_to_num(0.0, posinf=0.0).max().item() if x.numel() else 0.0


def between(low: Tensor, got: Tensor, high: Tensor, what: str) -> None:
    assert got.shape == low.shape, (what, got.shape, low.shape)
    inside = (low.double() - 1e-6 <= got.double()) & (got.double() <= high.double() + 1e-6)
    both_nan = low.double().isnan() & got.double().isnan()
    assert bool((inside | both_nan).all()), f"{what}\n{low}\n{got}\n{high}"


def _tensors(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [x for x in found if isinstance(x, Tensor)]


def check(seed: int) -> int:
    choice = Seeded(seed)
    call = make_call(choice, (torch.float64, torch.float32))
    _, heads, _, k = call.shape
    statistics = [
        make_statistic(choice, heads, k, call.leaves["v"].shape[-1]).named(f"s{i}")
        for i in range(choice.integer(1, 4))
    ]
    with torch.no_grad():
        seen = observe(**call.arguments(call.leaves), stats=statistics, backend=call.backend)
        dense = dense_of(call)
        # A weight is off by its score's rounding.
        atol = ATOL[call.dtype] * max(1.0, largest(dense.scores))
        for statistic in statistics:
            compare(statistic, seen.stats[statistic.name], dense, atol)
    return len(statistics)


def check_tree(seed: int) -> int:
    """Any cut into tiles, any order, any tree of merges gives what one tile gives."""
    choice = Seeded(seed)
    q, k = choice.pick((1, 2, 7, 33, 64, 65)), choice.pick((1, 2, 9, 33, 63, 65))
    batch, heads = choice.integer(1, 2), choice.integer(1, 3)
    dense = dense_map(choice.seed(), batch, heads, q, k, choice.pick(KINDS), choice.flag())
    statistic = make_statistic(choice, heads, k, 3)
    with torch.no_grad():
        compare(statistic, observed(statistic, dense, choice.seed()), dense, 1e-9)
    return 1


STATISTICS = Target("statistics", "one statistic of one call, against the dense map", check, tested=40)
TREES = Target("trees", "one statistic over random tiles, merged in a random tree", check_tree, tested=60)
