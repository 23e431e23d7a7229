"""Indices of a map mean what they mean to NumPy, or raise one clear error."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maps.cases import tensors
from regard import AttentionMap, Causal
from regard.errors import MapError, MapIndexError

SHAPE = (2, 3, 7, 9)


def lazy_and_dense() -> tuple[AttentionMap, np.ndarray]:
    torch.manual_seed(5)
    q, k, _ = tensors(2, 3, 3, 7, 9)
    lazy = AttentionMap.of(q, k, Causal())
    return lazy, lazy.dense().numpy()


LAZY, DENSE = lazy_and_dense()


def assert_as_numpy(index) -> None:
    got = LAZY[index]
    expected = DENSE[index]
    assert tuple(got.shape) == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-6, rtol=0)


def flags(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < 0.4


@pytest.mark.parametrize(
    "index",
    [
        (0, 0, np.array([1, 2])),
        (0, 0, np.array([1, -2], dtype=np.int32)),
        (0, 0, np.array([6, 1], dtype=np.uint16)),
        (0, 0, np.array([1, 2, 3])[::-1]),
        (np.int64(1), np.int16(2), np.array(3)),
        (0, 0, np.array([], dtype=np.int64)),
        None,
        (None, 0, None, 1, None),
        (..., None),
        (0, None, ..., 3),
        (0, 0, [[1, 2], [3, 4], [5, 6]]),
        (0, 0, 2, np.arange(8).reshape(2, 2, 2)),
        (0, 0, [[]]),
        (slice(None), slice(None), [[0], [6]]),
        flags(2),
        flags(2, 3),
        flags(2, 3, 7),
        flags(2, 3, 7, 9),
        (0, 0, flags(7, 9)),
        (0, 0, np.zeros((7, 9), dtype=bool)),
        (slice(0, 1), slice(None), slice(None), flags(9)),
        (slice(None), slice(None), flags(7, 9)),
        (slice(None), flags(3, 7), slice(1, 5)),
        (..., flags(7, 9)),
        (None, flags(2, 3), None),
        (0, [True, False, True]),
    ],
    ids=lambda index: repr(index).replace("\n", "")[:40],
)
def test_an_index_reads_what_numpy_reads(index):
    assert_as_numpy(index)


def test_tensors_of_flags_are_arrays_of_flags():
    mask = torch.from_numpy(flags(7, 9))
    torch.testing.assert_close(LAZY[0, 1, mask], LAZY[0, 1][mask])
    dense = LAZY.dense()
    torch.testing.assert_close(LAZY[dense > 0.3], dense[dense > 0.3])


@given(st.data())
def test_one_array_of_any_shape_reads_what_numpy_reads(data):
    axis = data.draw(st.integers(0, 3))
    shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    size = SHAPE[axis]
    many = math.prod(shape)
    entries = data.draw(st.lists(st.integers(-size, size - 1), min_size=many, max_size=many))
    array = np.array(entries, dtype=np.int64).reshape(shape)
    new = data.draw(st.lists(st.just(None), max_size=2))
    assert_as_numpy((slice(None),) * axis + (array, *new))


@given(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_flags_over_any_axes_read_what_numpy_reads(first, many, seed):
    last = min(4, first + many)
    assert_as_numpy((slice(None),) * first + (flags(*SHAPE[first:last], seed=seed),))


def test_two_lists_choose_every_combination_and_axes_keep_their_order():
    """The one thing that differs from NumPy, where two lists are pairs; numpy.ix_ says it there."""
    rows, cols = [0, 6, 6], [8, 1]
    np.testing.assert_allclose(LAZY[0, 0, rows, cols].numpy(), DENSE[0, 0][np.ix_(rows, cols)], rtol=1e-5)
    assert LAZY[0, :, rows].shape == (3, 3, 9)
    assert LAZY[[0, 1], :, :, [0, 1, 2]].shape == (2, 3, 7, 3)
    assert LAZY[0, 0, :, [1, 2]].shape == (7, 2)
    assert LAZY[flags(2, 3), [1, 2]].shape == (flags(2, 3).sum(), 2, 9)


def test_scores_take_the_same_indices():
    torch.testing.assert_close(LAZY.scores((0, 0, np.array([1, 2]))), LAZY.scores(0)[0, [1, 2]])


def test_a_loop_over_a_map_ends():
    rows = list(LAZY)
    assert len(rows) == len(LAZY) == 2
    torch.testing.assert_close(torch.stack(rows), LAZY.dense())
    with pytest.raises(IndexError, match=r"^batch 2 is out of range: the map has 2 \(batch 0 to 1\)\.$"):
        _ = LAZY[2]


USE = "use an int, a slice, None, a list, an array or a tensor of ints or flags."


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (True, f"the batch index is a bool; {USE}"),
        (np.True_, f"the batch index is a Tensor; {USE}"),
        ((0, torch.tensor(True)), f"the head index is a Tensor; {USE}"),
        ((0, 0, torch.tensor(1.0)), f"the query index is a Tensor; {USE}"),
        ((0, 0, np.array([1.0])), f"the query index is float64 of shape (1,); {USE}"),
        ((0, "a"), f"the head index is a str; {USE}"),
        ((0, np.array(["a"])), f"the head index is a ndarray; {USE}"),
        ((0, 0, np.array([7])), "query 7 is out of range: the map has 7 (query 0 to 6)."),
        ((0, 0, [[0], [-8]]), "query -8 is out of range: the map has 7 (query 0 to 6)."),
        ((0, 0, flags(9, 7)), "the query and key index has flags of shape (9, 7); wanted shape (7, 9)."),
        ((0, flags(2)), "the head index has 2 flags; wanted one for each of 3."),
        ((0, flags(3, 7, 9), 0), "a map has 4 axes (batch, head, query, key) and the index names 5."),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_an_index_is_named(index, message):
    with pytest.raises(MapError) as caught:
        _ = LAZY[index]
    assert str(caught.value) == message
    assert isinstance(caught.value, MapIndexError) is ("out of range" in message)


def test_a_map_without_queries_has_no_query():
    q, k, _ = tensors(1, 1, 1, 0, 5)
    with pytest.raises(MapIndexError, match=r"^query 0 is out of range: the map has none\.$"):
        AttentionMap.of(q, k).row(0, 0, 0)
