"""What keys receive."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import strategies as st

import regard
from regard.errors import ShapeError, StatisticError
from regard.maps import normalisers
from regard.stats import ColumnMass
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed


@in_any_cut()
def test_column_mass_matches_dense_in_any_tile_order(dense, seed):
    close(observed(ColumnMass(), dense, seed), dense.weights.sum(-2))


@in_any_cut()
def test_normalised_column_mass_is_the_mean_over_queries_that_may_see_the_key(dense, seed):
    seen = dense.allowed.sum(-2)
    mean = dense.weights.sum(-2) / seen
    close(observed(ColumnMass(normalise=True), dense, seed), mean.masked_fill(seen == 0, 0))


@in_any_cut(shape=st.sampled_from(["q", "1q", "hq", "bq", "bhq"]))
def test_weighted_column_mass_is_a_vector_times_the_map(dense, seed, shape):
    batch, heads, q, _ = dense.weights.shape
    sizes = {"q": (q,), "1q": (1, 1, q), "hq": (1, heads, q), "bq": (batch, 1, q), "bhq": (batch, heads, q)}
    rows = torch.randn(sizes[shape], dtype=torch.float64)
    full = rows.expand(batch, heads, q)
    close(observed(ColumnMass(rows=rows), dense, seed), torch.einsum("bhq,bhqk->bhk", full, dense.weights))


@pytest.mark.parametrize("kind", ["full", "causal", "shared", "ragged"])
def test_column_masses_sum_to_the_number_of_live_rows(kind):
    dense = dense_map(0, 2, 3, 63, 65, kind=kind)
    live = dense.allowed.any(-1).sum(-1)
    close(observed(ColumnMass(), dense, 0).sum(-1), live.double())


def test_column_mass_in_float32_keeps_its_digits_over_many_tiles():
    dense = dense_map(0, 1, 1, 4096, 3)
    expected = dense.weights.sum(-2)
    dense.weights, dense.values = dense.weights.float(), dense.values.float()
    tiles = [dense.tile(range(1), range(1), range(s, s + 1), range(3)) for s in range(4096)]
    found = fold(ColumnMass(), dense.frame, [tile for tile in tiles if tile])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("shape", [(3,), (5, 1), (2, 3, 4), (2, 2, 5), (1, 1, 1)])
def test_weights_for_other_queries_are_refused(shape):
    dense = dense_map(0, 2, 3, 5, 7)
    message = (
        f"rows of ColumnMass has shape {shape}; wanted one weight per query, (5,), or (2, 3, 5) with 1 for a "
        "batch or heads that share."
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        in_one(ColumnMass(rows=torch.ones(shape)), dense)


def test_column_mass_shows_what_was_asked_for():
    assert repr(ColumnMass()) == "ColumnMass()"
    assert repr(ColumnMass(True, torch.ones(1, 2, 63))) == "ColumnMass(normalise=True, rows=<1 × 2 × 63>)"


@in_any_cut(last=st.integers(1, 80))
def test_the_mass_of_the_last_queries_is_that_of_their_rows(dense, seed, last):
    rows = dense.weights[:, :, -last:]
    close(observed(ColumnMass(last=last), dense, seed), rows.sum(-2))
    seen = dense.allowed[:, :, -last:].sum(-2)
    mean = (rows.sum(-2) / seen).masked_fill(seen == 0, 0)
    close(observed(ColumnMass(normalise=True, last=last), dense, seed), mean)


@pytest.mark.parametrize("mask", [None, regard.Causal(), regard.Window(40) & regard.Causal()])
def test_a_call_reads_only_the_last_rows_and_finds_the_same(mask):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 300, 16, generator=generator)
    k = torch.randn(2, 2, 310, 16, generator=generator)
    weights = torch.linspace(-1, 1, 300)
    stats = [
        ColumnMass(last=32),
        ColumnMass(normalise=True, last=7).named("mean"),
        ColumnMass(rows=weights, last=50).named("weighed"),
    ]
    seen = regard.observe(q, k, k, mask=mask, stats=stats)
    dense = seen.map.dense()
    allowed = torch.ones(300, 310) if mask is None else mask.dense(300, 310).float()
    torch.testing.assert_close(seen.column_mass, dense[:, :, -32:].sum(-2))
    torch.testing.assert_close(seen.mean, dense[:, :, -7:].sum(-2) / allowed[-7:].sum(0).clamp(min=1))
    torch.testing.assert_close(
        seen.weighed, torch.einsum("q,bhqk->bhk", weights[-50:], dense[:, :, -50:]), atol=1e-5, rtol=1e-5
    )


def test_a_map_learns_only_the_rows_it_reads(monkeypatch):
    x = torch.randn(1, 2, 2000, 8, generator=torch.Generator().manual_seed(0))
    learned = []
    own = normalisers.forward
    monkeypatch.setattr(normalisers, "forward", lambda part: learned.append(part.q_len) or own(part))
    seen = regard.AttentionMap.of(x, x, regard.Causal())
    mass = seen.stats(ColumnMass(last=20))["column_mass"]
    assert learned == [20]
    torch.testing.assert_close(mass, seen.dense()[:, :, -20:].sum(-2))
    seen = regard.AttentionMap.of(x * 1000, x, regard.Causal())
    mass = seen.stats(ColumnMass(last=20))["column_mass"]
    torch.testing.assert_close(mass, seen[:, :, -20:].sum(-2))


@pytest.mark.parametrize("last", [0, -1, True])
def test_a_number_of_last_queries_that_is_none_is_refused(last):
    with pytest.raises(StatisticError, match=f"^ColumnMass got last={last}"):
        ColumnMass(last=last)
