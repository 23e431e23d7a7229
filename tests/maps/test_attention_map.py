"""`AttentionMap` reads like the matrix it never builds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from maps.cases import cases, tensors
from regard import AttentionMap, Causal, ColumnMass, Entropy, observe
from regard.errors import MapError, ShapeError
from regard.maps import attention_map

CASES = cases()


def mapped(case) -> AttentionMap:
    return AttentionMap.of(case.q, case.k, case.mask, **case.options)


def index_of(size: int):
    """Ints, slices with steps and negative bounds, lists and tensors for one axis."""
    ints = st.integers(-size, size - 1)
    ends = st.none() | st.integers(-size - 2, size + 2)
    slices = st.builds(slice, ends, ends, st.none() | st.sampled_from([1, 2, 3, -1, -2]))
    return (
        ints | slices | st.lists(ints, max_size=4) | st.lists(ints, min_size=1, max_size=4).map(torch.tensor)
    )


def orthogonal(dense: torch.Tensor, index: tuple) -> torch.Tensor:
    """Each axis on its own, one after the other, ints last so that axes keep their numbers."""
    array = dense.numpy()
    for axis, part in enumerate(index):
        if not isinstance(part, int):
            part = np.asarray(part, dtype=np.int64) if not isinstance(part, slice) else part
            array = array[(slice(None),) * axis + (part,)]
    for axis in reversed(range(len(index))):
        if isinstance(index[axis], int):
            array = array.take(index[axis], axis)
    return torch.from_numpy(np.array(array))


@given(st.tuples(index_of(2), index_of(4), index_of(20), index_of(31)), st.integers(0, 4))
def test_any_index_reads_what_the_dense_map_holds(index, used):
    torch.manual_seed(3)
    q, k, _ = tensors(2, 4, 2, 20, 31)
    lazy = AttentionMap.of(q, k, Causal())
    s = (q.double() @ k.double().repeat_interleave(2, 1).mT / 4).masked_fill(
        ~Causal().dense(20, 31), -torch.inf
    )
    got = lazy[index[:used]] if used else lazy[...]
    torch.testing.assert_close(got.double(), orthogonal(s.softmax(-1), index[:used]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_tiles_rows_columns_and_diagonals_are_exact(name):
    case = CASES[name]
    lazy, dense = mapped(case), case.dense
    weights = dense.weights
    _, _, q, k = weights.shape
    tile = (slice(None), slice(None), slice(q // 3, q // 2 + 1), slice(k // 4, k // 2 + 1))
    torch.testing.assert_close(lazy[tile].double(), weights[tile], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(lazy.row(0, 0, q - 1).double(), weights[0, 0, q - 1], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(
        lazy.column(0, 0, k // 2).double(), weights[0, 0, :, k // 2], atol=1e-6, rtol=1e-4
    )
    torch.testing.assert_close(lazy.scores(tile).double(), dense.scores[tile], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lazy.lse.double(), dense.lse, atol=1e-5, rtol=1e-6)
    for distance in (0, 1, k // 2, -2, k + 5):
        expected = weights[0, 0].diagonal(k - q - distance) if abs(distance) < k else weights.new_empty(0)
        torch.testing.assert_close(lazy.diagonal(0, 0, distance).double(), expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["plain", "grouped window with a cache", "sink and soft cap", "dead rows"])
def test_products_with_the_map_are_products_with_the_matrix(name):
    case = CASES[name]
    lazy, dense = mapped(case), case.dense
    _, heads, q, k = dense.weights.shape
    torch.testing.assert_close(lazy.apply(case.v).double(), dense.out, atol=1e-5, rtol=1e-4)
    x = torch.randn(1, heads, k, 3)
    torch.testing.assert_close(lazy.right(x).double(), dense.weights @ x.double(), atol=1e-5, rtol=1e-4)
    shared = torch.randn(k, 2)
    torch.testing.assert_close(
        lazy.right(shared).double(), dense.weights @ shared.double(), atol=1e-5, rtol=1e-4
    )
    r = torch.rand(q)
    expected = (r.double() @ dense.weights.transpose(0, 2).flatten(1)).view(heads, 1, k).transpose(0, 1)
    torch.testing.assert_close(lazy.left(r).double(), expected, atol=1e-5, rtol=1e-4)


def test_right_refuses_other_lengths():
    q, k, _ = tensors(1, 4, 2, 5, 9)
    with pytest.raises(ShapeError, match=r"x has shape \(8, 3\); it must be \(k, d\).*k 9"):
        AttentionMap.of(q, k).right(torch.zeros(8, 3))


def test_reading_a_row_computes_the_log_sum_exp_of_that_row_alone():
    q, k, _ = tensors(1, 1, 1, 3000, 50)
    lazy = AttentionMap.of(q, k)
    lazy.row(0, 0, 1234)
    assert lazy._rows.known.nonzero().flatten().tolist() == [1234]
    _ = lazy[0, 0, [5, 9, 2000]]
    assert lazy._rows.known.nonzero().flatten().tolist() == [5, 6, 7, 8, 9, 1234, 2000]


def test_the_pyramid_is_the_pooled_map_at_every_level():
    q, k, _ = tensors(1, 2, 1, 201, 333)
    lazy = AttentionMap.of(q, k, Causal())
    levels = lazy.pyramid(4, size=8)
    for level, size in zip(levels, (8, 16, 32, 64), strict=True):
        torch.testing.assert_close(level.mean, lazy.pooled(size), atol=1e-7, rtol=1e-4)
        assert torch.equal(level.max, lazy.pooled(size, "max"))


def test_top_keys_and_statistics_come_from_the_map():
    q, k, v = tensors(1, 2, 2, 40, 40)
    seen = observe(q, k, v, Causal(), stats=[Entropy(), ColumnMass()])
    found = seen.map.stats(Entropy(), ColumnMass())
    torch.testing.assert_close(found["entropy"], seen.entropy, atol=1e-5, rtol=0)
    torch.testing.assert_close(found["column_mass"], seen.column_mass)
    assert torch.equal(seen.map.topk(1).key[..., 0], seen.map.dense().argmax(-1))


def test_a_map_of_a_million_tokens_reads_one_tile_from_memory_mapped_tensors(tmp_path):
    n, dim = 1_000_000, 8
    files = []
    for name in "qk":
        path = tmp_path / f"{name}.bin"
        np.memmap(path, np.float32, "w+", shape=(n, dim))[:] = np.random.default_rng(0).normal(size=(n, dim))
        files.append(torch.from_file(str(path), shared=False, size=n * dim).view(1, 1, n, dim))
    lazy = AttentionMap.of(*files, Causal())
    tile = lazy[0, 0, 500_000:500_004, 499_990:500_010]
    q, k = (x[0, 0].double() for x in files)
    s = q[500_000:500_004] @ k[:500_004].T / dim**0.5
    s = s.masked_fill(torch.ones(4, 500_004, dtype=torch.bool).triu(500_001), -torch.inf)
    expected = torch.zeros(4, 20, dtype=torch.float64)
    expected[:, :14] = s.softmax(-1)[:, 499_990:]
    torch.testing.assert_close(tile.double(), expected, atol=1e-9, rtol=1e-4)
    assert int(lazy._rows.known.sum()) == 4


class Largest(TorchDispatchMode):
    """Remembers the most numbers that any operation wrote to memory of its own."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        for x in made if isinstance(made, tuple | list) else [made]:
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in given:
                self.most = max(self.most, x.numel())
        return made


@pytest.mark.parametrize("keys", [slice(30, 40), [3, 900, 70]], ids=["neighbours", "anywhere"])
@pytest.mark.parametrize("heads", [slice(None), 5], ids=["all heads", "one head"])
def test_a_tile_of_shared_heads_copies_no_other_keys(heads, keys):
    q, k = torch.randn(1, 8, 4096, 16), torch.randn(1, 4, 4096, 16)
    seen = AttentionMap.of(q, k, mask=Causal())
    _ = seen.lse
    with Largest() as largest:
        seen[0, heads, 1000:1004, keys]
    assert largest.most <= 8 * 16 * 16


def test_small_maps_become_arrays():
    q, k, _ = tensors(1, 1, 1, 3, 5)
    array = np.asarray(AttentionMap.of(q, k)[0])
    assert array.shape == (1, 3, 5)
    np.testing.assert_allclose(np.asarray(AttentionMap.of(q, k)).sum(-1), 1.0, rtol=1e-6)


def test_the_dense_map_is_refused_above_the_stated_size(monkeypatch):
    q, k, _ = tensors(1, 2, 2, 30, 30)
    monkeypatch.setattr(attention_map, "CELLS", 1000)
    lazy = AttentionMap.of(q, k)
    with pytest.raises(MapError, match=r"1 x 2 x 30 x 30 = 1,800 cells, more than 1,000. Read a tile"):
        lazy.dense()
    with pytest.raises(MapError, match="1,800 cells are too many to build at once"):
        _ = lazy[:]


def test_a_map_whose_keys_were_changed_in_place_is_refused():
    q, k, v = tensors(1, 1, 1, 6, 6)
    seen = observe(q, k, v)
    k += 1
    with pytest.raises(MapError, match="k was changed in place after this map was made"):
        seen.map.row(0, 0, 0)
    with pytest.raises(MapError, match="k was changed in place"):
        seen.map.stats(Entropy())


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((0, 0, 6), "query 6 is out of range: the map has 6"),
        ((0, 0, 0, [0, 9]), "key 9 is out of range"),
        ((0, 0, 0, 0, 0), "a map has 4 axes"),
        ((0, "a"), "the head index is a str"),
        ((0, 0, 1.5), "the query index is a float"),
        ((..., 0, ...), "one ellipsis"),
        ((0, 0, torch.tensor([True, False])), "2 flags; wanted one for each of 6"),
    ],
)
def test_bad_indices_are_named(index, message):
    q, k, _ = tensors(1, 2, 2, 6, 6)
    with pytest.raises(MapError, match=message):
        _ = AttentionMap.of(q, k)[index]


def test_bool_indices_and_an_ellipsis_work():
    q, k, _ = tensors(1, 2, 2, 6, 6)
    lazy = AttentionMap.of(q, k)
    flags = torch.tensor([True, False, True, False, False, False])
    assert torch.equal(lazy[0, 1, flags], lazy[0, 1, [0, 2]])
    assert torch.equal(lazy[..., 3], lazy[:, :, :, 3])


def test_repr_says_sizes_and_mask():
    q, k, _ = tensors(1, 2, 2, 6, 7)
    assert (
        repr(AttentionMap.of(q, k, Causal()))
        == "AttentionMap(batch=1, heads=2, q=6, k=7, mask=Causal(), float32)"
    )
