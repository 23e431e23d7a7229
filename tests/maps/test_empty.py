"""A map without rows, columns or cells has statistics too: nothing, in the right shape."""

from __future__ import annotations

import pytest
import torch

from regard import Causal, Dense, Padding, observe
from regard.stats import (
    ColumnMass,
    ColumnMax,
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
    TopK,
    ValueWeighted,
    VerticalSlash,
    WindowedMass,
)

HEADS = 3
LENGTHS = [(2, 0, 5), (2, 5, 0), (2, 0, 0), (2, 0, 1), (2, 1, 0), (0, 5, 7)]


def shapes(batch: int, q: int, k: int) -> dict:
    """Each statistic with the shapes of what it returns and the number every entry is."""
    lead = (batch, HEADS)
    return {
        ColumnMass(): [((*lead, k), 0)],
        ColumnMass(normalise=True): [((*lead, k), 0)],
        ColumnMass(last=2): [((*lead, k), 0)],
        ColumnMax(): [((*lead, k), 0)],
        Custom(lambda tile: tile.weights.sum(-1), over="rows"): [((*lead, q), 0)],
        Decay(): [((k,), None), ((*lead, k), 0), ((*lead, k), 0)],
        Entropy(): [((*lead, q), 0)],
        HeadDivergence(): [((*lead, HEADS), 0)],
        HeadSum(1): [((batch, q, 1), 0), ((batch, q, 1), -1)],
        Histogram(edges=(0.5,)): [((3,), None), ((*lead, 2), 0)],
        Histogram(of="score", edges=(0.0,)): [((3,), None), ((*lead, 2), 0)],
        MaxScore(): [((*lead, q), -torch.inf), ((*lead, q), -1)],
        MeanDistance(): [((*lead, q), 0)],
        NormWeighted(torch.ones(HEADS, 8, 4)): [((*lead, q), 0), ((*lead, k), 0)],
        Pooled(4, "both"): [((*lead, -(-q // 4), -(-k // 4)), 0)] * 2,
        Pooled(4): [((*lead, -(-q // 4), -(-k // 4)), 0)],
        Pooled(4, "max"): [((*lead, -(-q // 4), -(-k // 4)), 0)],
        ReceptiveWindow(): [(lead, None)],
        SegmentMass(((0, k), (k, k))): [((*lead, q, 2), 0)],
        SinkMass(): [((*lead, q), 0)],
        SinkRate(): [((batch,), 0)],
        TopK(1): [((*lead, q, 1), 0), ((*lead, q, 1), -1)],
        ValueWeighted(): [((*lead, q), 0)],
        WindowedMass(2): [((*lead, -(-q // 2), k), 0)],
        VerticalSlash(1): [((*lead, min(1, k)), None)] * 4,
    }


EVERY = list(shapes(1, 1, 1))


@pytest.mark.share(6)
@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["no mask", "causal"])
@pytest.mark.parametrize(("batch", "q", "k"), LENGTHS, ids=str)
@pytest.mark.parametrize("number", range(len(EVERY)), ids=lambda i: type(EVERY[i]).__name__)
def test_every_statistic_of_an_empty_map_is_empty(number, batch, q, k, mask, backend):
    statistic, expected = list(shapes(batch, q, k).items())[number]
    given = [torch.randn(batch, HEADS, n, 8) for n in (q, k, k)]
    seen = observe(*given, mask, stats=[statistic.named("it")], backend=backend)
    found = [seen.it] if isinstance(seen.it, torch.Tensor) else list(seen.it)
    assert len(found) == len(expected)
    for got, (shape, value) in zip(found, expected, strict=True):
        assert tuple(got.shape) == shape
        if value is not None:
            assert bool((got == value).all())
    assert seen.out.shape == (batch, HEADS, q, 8)
    assert bool((seen.out == 0).all())
    assert seen.map.dense().shape == (batch, HEADS, q, k)


MASKS = {
    "dense": lambda batch, q, k: Dense(torch.ones(batch, HEADS, q, k, dtype=torch.bool)),
    "padding": lambda batch, q, k: Padding(torch.ones(batch, k, dtype=torch.bool)),
}


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("make", MASKS.values(), ids=list(MASKS))
def test_a_mask_of_no_batch_rows_allows_nothing(make, backend):
    mask = make(0, 5, 7) & Causal()
    q, k, v = (torch.randn(0, HEADS, n, 8) for n in (5, 7, 7))
    seen = observe(q, k, v, mask, stats=[ValueWeighted(), SinkMass(), ColumnMass()], backend=backend)
    assert seen.out.shape == (0, HEADS, 5, 8)
    assert seen.value_weighted.shape == seen.sink_mass.shape == (0, HEADS, 5)
    assert mask.pairs(5, 7) == 0
    assert mask.dense(5, 7).shape[0] == 0


def test_a_diagonal_of_a_map_without_keys_is_empty():
    q, k, v = (torch.randn(1, HEADS, n, 8) for n in (5, 0, 0))
    assert observe(q, k, v).map.diagonal(0, 0, 0).shape == (0,)
