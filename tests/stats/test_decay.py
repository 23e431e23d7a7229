"""Attention by distance."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import Decay
from regard.stats.decay import octave_starts
from stats.harness import KINDS, close, dense_map, fold, in_any_cut, in_one, observed


def dense_decay(dense, distances, skip_keys=0):
    """The mean and count over pairs of each list of distances, by masking the whole matrix."""
    means, counts = [], []
    allowed = dense.allowed.clone()
    allowed[..., :skip_keys] = False
    for group in distances:
        chosen = allowed & torch.isin(dense.distance, torch.tensor(group))
        counts.append(chosen.sum((-2, -1)))
        means.append((dense.weights * chosen).sum((-2, -1)) / counts[-1].clamp(min=1))
    return torch.stack(means, -1), torch.stack(counts, -1)


@in_any_cut(skip_keys=st.integers(0, 70), signed=st.booleans())
def test_decay_matches_dense_in_any_tile_order(dense, seed, skip_keys, signed):
    lowest = 1 - dense.frame.q if signed else 0
    curve = observed(Decay(skip_keys=skip_keys, signed=signed), dense, seed)
    distances = list(range(lowest, dense.frame.k))
    mean, count = dense_decay(dense, [[d] for d in distances], skip_keys)
    assert curve.distance.tolist() == distances
    close(curve.mean, mean)
    assert torch.equal(curve.count, count)


@in_any_cut(per_octave=st.integers(1, 5), signed=st.booleans())
def test_log_bins_are_means_over_all_pairs_of_the_bin(dense, seed, per_octave, signed):
    lowest, stop = (1 - dense.frame.q if signed else 0), dense.frame.k
    edges = [0] + [2 ** (i / per_octave) for i in range(7 * per_octave + 1)]
    bins = {}
    for d in range(lowest, stop):
        place = max(i for i, edge in enumerate(edges) if abs(d) >= edge)
        bins.setdefault((d > 0) - (d < 0), {}).setdefault(place, []).append(d)
    groups = sorted(group for side in bins.values() for group in side.values())
    curve = observed(Decay("log", per_octave, signed=signed), dense, seed)
    mean, count = dense_decay(dense, groups)
    middles = [math.copysign(math.sqrt(group[0] * group[-1]), group[0]) for group in groups]
    close(curve.distance, torch.tensor(middles, dtype=torch.float64))
    close(curve.mean, mean)
    assert torch.equal(curve.count, count)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip_keys", [0, 3])
def test_decay_of_large_tiles_matches_dense(kind, skip_keys):
    dense = dense_map(0, 1, 2, 130, 200, kind=kind)
    curve = in_one(Decay(skip_keys=skip_keys), dense)
    mean, count = dense_decay(dense, [[d] for d in range(200)], skip_keys)
    close(curve.mean, mean)
    assert torch.equal(curve.count, count)


@pytest.mark.parametrize("bins", ["linear", "log"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("q", "k"), [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_every_distance_has_a_mean_and_a_count_however_short_the_map(bins, signed, q, k):
    frame = dense_map(0, 1, 1, q, k).frame
    curve = fold(Decay(bins, signed=signed), frame, [])
    assert curve.mean.shape == curve.count.shape == (1, 1, len(curve.distance))
    assert len(curve.distance) >= (q > 1 and signed) + k


def test_pairs_are_counted_once_for_heads_that_share_a_mask():
    frame = dense_map(0, 2, 3, 5, 7, kind="causal").frame
    assert Decay().init(frame)["counts"].shape == (1, 1, 11)
    assert Decay().init(dense_map(0, 2, 3, 5, 7, kind="ragged").frame)["counts"].shape == (2, 3, 11)


def test_log_bins_hold_every_distance_once():
    starts = octave_starts(0, 100, per_octave=3)
    assert starts[:8] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert starts == sorted(set(starts))


def test_unknown_bins_are_refused():
    with pytest.raises(StatisticError, match=r"^Decay got bins='cubic'; it must be 'linear' or 'log'\.$"):
        Decay("cubic")
