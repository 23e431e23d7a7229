"""What each part of a text takes."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import StatisticError
from regard.stats import Frame, SegmentMass
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed

FRAME = Frame(batch=1, heads=1, q=1, k=10)


@in_any_cut(count=st.integers(1, 70), rng=st.randoms(use_true_random=False))
def test_segment_mass_matches_dense_in_any_tile_order(dense, seed, count, rng):
    segments = list(SegmentMass.bins(min(count, dense.frame.k), dense.frame.k).ranges)
    rng.shuffle(segments)
    expected = [dense.weights[..., list(segment)].sum(-1) for segment in segments]
    close(observed(SegmentMass(segments), dense, seed), torch.stack(expected, -1))


def test_the_columns_of_segment_mass_say_the_same_as_its_tiles():
    dense = dense_map(0, 2, 3, 5, 63)
    parts = SegmentMass([(30, 63), (0, 7), (7, 30)])
    close(dense.weights @ parts.columns(dense.frame), in_one(parts, dense))


def test_segments_can_have_names():
    parts = SegmentMass({"prompt": range(0, 4), "text": (4, 10)})
    assert parts.names == ("prompt", "text")
    assert parts.ranges == (range(0, 4), range(4, 10))
    renamed = parts.named("parts")
    assert (renamed.names, renamed.ranges, renamed.name) == (parts.names, parts.ranges, "parts")


def test_an_empty_segment_has_no_mass():
    dense = dense_map(0, 1, 1, 3, 10)
    assert in_one(SegmentMass([(0, 0), (0, 10)]), dense)[..., 0].abs().max() == 0


@pytest.mark.parametrize(("count", "k"), [(1, 1), (1, 63), (3, 65), (65, 65)])
def test_bins_cover_every_key_once_and_differ_by_at_most_one_key(count, k):
    ranges = SegmentMass.bins(count, k).ranges
    assert [key for part in ranges for key in part] == list(range(k))
    sizes = [len(part) for part in ranges]
    assert len(ranges) == count
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("segments", "what"),
    [
        ([(0, 4), (5, 10)], "leave keys 4 to 4 out"),
        ([(2, 10)], "leave keys 0 to 1 out"),
        ([(0, 7)], "leave keys 7 to 9 out"),
        ([], "leave keys 0 to 9 out"),
        ([(0, 6), (4, 10)], "overlap at keys 4 to 5"),
        ([(4, 10), (0, 6), (9, 10)], "overlap at keys 4 to 5"),
        ([(0, 10), (2, 3)], "overlap at keys 2 to 2"),
        ([(0, 12)], "go on to key 11"),
        ([(0, 5), (5, 12), (12, 13)], "go on to key 11"),
    ],
)
def test_segments_that_are_no_tiling_are_refused_at_the_first_fault(segments, what):
    message = (
        f"the segments of SegmentMass {what}, and there are 10 keys; "
        "every key from 0 to 9 must be in exactly one."
    )
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        fold(SegmentMass(segments), FRAME, [])


def test_segments_with_a_step_are_refused():
    message = "SegmentMass got range(0, 10, 2); a segment is a range of keys with step 1."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        SegmentMass([range(0, 10, 2)])


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("segment", [5, (0, 1, 2), "ab"])
def test_segments_that_are_no_ranges_are_refused(segment):
    message = f"SegmentMass got {segment!r}; a segment is range(start, stop) or (start, stop)."
    with pytest.raises(StatisticError, match=f"^{re.escape(message)}$"):
        SegmentMass([segment])


def test_segments_that_run_backwards_are_refused():
    with pytest.raises(StatisticError, match=r"^SegmentMass got stop=3; it must be at least 5\.$"):
        SegmentMass([(5, 3)])


@pytest.mark.parametrize("count", [0, 11])
def test_bins_without_a_key_are_refused(count):
    with pytest.raises(
        StatisticError, match=rf"^SegmentMass\.bins got count={count} for 10 keys; wanted 1 to 10\.$"
    ):
        SegmentMass.bins(count, 10)


def test_as_many_names_as_segments_are_wanted():
    with pytest.raises(StatisticError, match=r"^SegmentMass got 1 segments and 2 names; wanted as many\.$"):
        SegmentMass([(0, 10)], ("a", "b"))
