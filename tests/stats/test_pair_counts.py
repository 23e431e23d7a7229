"""Every statistic that counts pairs counts those that the mask allows, row by row of the batch."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from engine.harness import own_random_state, qkv
from oracle import dense_attention, dense_mask
from regard import observe
from regard.masks import Causal, Documents, Mask, Padding, Prefix, Window
from regard.stats import ColumnMass, Decay, Histogram, SinkRate

# Row 0 has documents in pieces: its queries see no interval of keys. Row 1's queries do.
MIXED = ((0, 1, 0, 1), (0, 0, 1, 1))
STATISTICS = [
    Histogram(edges=(0.05, 0.5)),
    Decay(signed=True),
    Decay(skip_keys=2).named("short"),
    Decay(bins="log").named("octaves"),
    ColumnMass(normalise=True),
    *(SinkRate(key, 0.2).named(f"sink_{key}") for key in range(3)),
]


@pytest.mark.parametrize(("row", "wanted"), [(0, 8), (1, 8)])
def test_a_histogram_counts_the_pairs_of_each_row_of_documents(row, wanted):
    x = torch.zeros(2, 1, 4, 8)
    found = observe(x, x, x, mask=Documents(ids=torch.tensor(MIXED)), stats=[Histogram(edges=(0.5,))])
    assert int(found.histogram.counts[row].sum()) == wanted


# Documents in pieces, documents that follow one another, and padding of either.
rows_of_ids = st.one_of(
    st.lists(st.integers(-1, 2), min_size=7, max_size=7),
    st.lists(st.integers(-1, 2), min_size=7, max_size=7).map(sorted),
    st.just([0] * 7),
)
JOINS = {
    "documents": lambda ids, valid: ids,
    "causal": lambda ids, valid: Causal() & ids,
    "window": lambda ids, valid: ids & Window(3, 2),
    "padding": lambda ids, valid: ids & valid,
    "not": lambda ids, valid: ~ids,
    "not causal": lambda ids, valid: ~(Causal() & ids),
    "or prefix": lambda ids, valid: ids & Causal() | Prefix(1),
    "or padding": lambda ids, valid: Causal() & ids | valid & Window(2),
}


@given(
    ids=st.lists(rows_of_ids, min_size=2, max_size=3),
    flags=st.lists(st.booleans(), min_size=21, max_size=21),
    join=st.sampled_from(sorted(JOINS)),
    q=st.sampled_from([1, 3, 7]),
    backend=st.sampled_from(["auto", "torch"]),
)
@example([[0, 1, 0, 1, 0, 1, 0], [0, 0, 0, 1, 1, 1, 1]], [True] * 21, "documents", 7, "auto")
def test_pairs_are_counted_as_the_dense_mask_has_them(ids, flags, join, q, backend):
    held = torch.tensor(ids)
    valid = Padding(torch.tensor(flags).view(3, 7)[: len(held)])
    with own_random_state():
        mask = JOINS[join](Documents(ids=held), valid)
        leaves = qkv(q, 7, batch=len(held), heads=2)
        compared_with_dense(leaves, mask, backend)


def test_long_rows_of_documents_are_counted_across_pieces_of_a_map():
    torch.manual_seed(3)
    ids = torch.stack([torch.randint(0, 3, (1100,)), torch.arange(1100) // 400, torch.zeros(1100).long()])
    compared_with_dense(qkv(700, 1100, batch=3, heads=2), Documents(ids=ids) & Window(900), "auto")


def compared_with_dense(leaves: dict[str, Tensor], mask: Mask, backend: str) -> None:
    found = observe(**leaves, mask=mask, stats=STATISTICS, backend=backend)
    allowed = dense_mask(mask, leaves["q"], leaves["k"])
    weights = dense_attention(**leaves, allowed=allowed, dtype=torch.float64).weights
    allowed = allowed.expand(weights.shape)
    assert torch.equal(found.histogram.counts.sum(-1), allowed.sum((-2, -1)))
    for at, (low, high) in enumerate(pairwise(found.histogram.edges.tolist())):
        # What lies on a border falls to either side.
        inside = [
            (allowed & (weights >= low + e) & ((weights < high - e) | (high == 1))).sum((-2, -1))
            for e in (1e-6 * (at > 0), -1e-6)
        ]
        count = found.histogram.counts[..., at]
        assert bool(((inside[0] <= count) & (count <= inside[1])).all())
    columns = weights.sum(-2) / allowed.sum(-2).clamp(min=1)
    torch.testing.assert_close(found.column_mass.double(), columns, rtol=0, atol=1e-5)
    for key in range(3):
        rate = (columns[..., key] > 0.2).double().mean(-1)
        # A mean that lies on the threshold falls to either side.
        clear = ((columns[..., key] - 0.2).abs() > 1e-5).all(-1)
        assert torch.equal(getattr(found, f"sink_{key}").double()[clear], rate[clear])
    for curve, skip in ((found.decay, 0), (found.short, 2)):
        by_distance(curve, weights, allowed, skip)
    assert torch.equal(found.octaves.count.sum(-1), found.decay.count[..., -found.map.shape[-1] :].sum(-1))


def by_distance(curve, weights: Tensor, allowed: Tensor, skip: int) -> None:
    """A curve's counts and means are those of the dense map."""
    q, k = weights.shape[-2:]
    seen = torch.arange(k) >= skip
    allowed, weights = allowed & seen, weights * seen
    for at, distance in enumerate(curve.distance.tolist()):
        # Query i is at position i + k - q, so its key at this distance is i + k - q - distance.
        offset = k - q - distance
        count = allowed.diagonal(offset, -2, -1).sum(-1)
        assert torch.equal(curve.count[..., at], count)
        mean = weights.diagonal(offset, -2, -1).sum(-1) / count.clamp(min=1)
        torch.testing.assert_close(curve.mean[..., at].double(), mean, rtol=0, atol=1e-5)
