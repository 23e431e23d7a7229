"""Coverage never contradicts the matrix, and the closed forms miss nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from effort import examples
from regard.masks import (
    BigBird,
    Causal,
    Coverage,
    Dense,
    Documents,
    Global,
    Longformer,
    Mask,
    Padding,
    RandomBlocks,
    StreamingSinks,
    Where,
    Window,
)
from strategies import held_masks, lengths, masks, shapes

TILES = st.sampled_from([1, 2, 5, 16, 32, 64])


def tiling(q: int, k: int, q_tile: int, k_tile: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bounds of every tile of the matrix, as rows and columns that broadcast."""
    q_start, k_start = torch.arange(k - q, k, q_tile)[:, None], torch.arange(0, k, k_tile)[None]
    return q_start, (q_start + q_tile).clamp(max=k), k_start, (k_start + k_tile).clamp(max=k)


def looked_up(mask: Mask, q: int, k: int, q_tile: int, k_tile: int) -> list[list[int]]:
    """The coverage of every tile, read off the matrix."""
    matrix = mask.dense(q, k)
    parts = [row.split(k_tile, -1) for row in matrix.split(q_tile, -2)]
    return [[2 if part.all() else 1 if part.any() else 0 for part in row] for row in parts]


@examples(100)
@given(data=st.data(), q=lengths(), k=lengths(), batch=st.integers(1, 3), heads=st.integers(1, 2))
def test_coverage_never_contradicts_the_matrix(
    data: st.DataObject, q: int, k: int, batch: int, heads: int
) -> None:
    mask = data.draw(masks(q, k, batch, heads))
    q_tile, k_tile = data.draw(TILES), data.draw(TILES)
    claimed = mask.cover(*tiling(q, k, q_tile, k_tile))
    truth = torch.tensor(looked_up(mask, q, k, q_tile, k_tile))
    assert claimed.dtype == torch.int8
    assert claimed.shape == truth.shape
    assert torch.equal(claimed[claimed != 1].long(), truth[claimed != 1])


@examples(100)
@given(data=st.data(), q=lengths(), k=lengths())
def test_coverage_of_a_shape_is_exact(data: st.DataObject, q: int, k: int) -> None:
    mask = data.draw(shapes(k))
    q_tile, k_tile = data.draw(TILES), data.draw(TILES)
    assert mask.cover(*tiling(q, k, q_tile, k_tile)).tolist() == looked_up(mask, q, k, q_tile, k_tile)


@given(data=st.data(), q=lengths(), k=lengths())
def test_coverage_of_positions_past_both_ends_never_contradicts_them(
    data: st.DataObject, q: int, k: int
) -> None:
    mask = data.draw(shapes(k) | held_masks(q, k, 2, 2))
    q_start, k_start = data.draw(st.integers(-9, k + 9)), data.draw(st.integers(-9, k + 9))
    q_range, k_range = range(q_start, q_start + 5), range(k_start, k_start + 5)
    coverage, tile = mask.coverage(q_range, k_range), mask.tile(q_range, k_range)
    assert coverage != Coverage.FULL or tile.all()
    assert coverage != Coverage.EMPTY or not tile.any()


@examples(100)
@given(data=st.data(), n=lengths(), tile=TILES)
def test_coverage_of_documents_is_exact_where_each_is_in_one_piece(
    data: st.DataObject, n: int, tile: int
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    sizes = [stop - start for start, stop in zip([0, *cuts], [*cuts, n], strict=True)]
    padding = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    names = torch.where(padding, -1, torch.arange(len(sizes)).flip(0))
    mask = Documents(ids=names.repeat_interleave(torch.tensor(sizes)))
    assert mask.cover(*tiling(n, n, tile, 5)).tolist() == looked_up(mask, n, n, tile, 5)


@given(data=st.data(), k=lengths(), tile=TILES)
def test_coverage_of_padding_is_exact(data: st.DataObject, k: int, tile: int) -> None:
    mask = Padding.from_lengths(data.draw(st.lists(st.integers(0, k), min_size=1, max_size=3)), k)
    assert mask.cover(*tiling(3, k, 2, tile)).tolist() == looked_up(mask, 3, k, 2, tile)


def test_coverage_of_a_dense_mask_is_exact_on_blocks_of_32() -> None:
    flags = torch.zeros(2, 1, 65, 129, dtype=torch.bool)
    flags[:, :, :32, 64:128] = True
    flags[1, :, 64, 0] = True
    mask = Dense(flags)
    assert mask.cover(*tiling(65, 129, 32, 64)).tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 0]]
    assert looked_up(mask, 65, 129, 32, 64) == [[0, 2, 0], [0, 0, 0], [1, 0, 0]]


def test_nothing_is_allowed_or_full_past_the_ends_of_a_dense_mask() -> None:
    mask = Dense(torch.ones(3, 5, dtype=torch.bool))
    assert mask.coverage((2, 5), (0, 5)) == Coverage.FULL
    for q, k in (((1, 5), (0, 5)), ((2, 6), (0, 5)), ((2, 5), (-1, 5)), ((2, 5), (0, 6))):
        assert mask.coverage(q, k) == Coverage.PARTIAL
        assert mask.tile(q, k).sum() == 15


def test_interleaved_documents_still_leave_other_documents_empty() -> None:
    ids = torch.tensor([0, 1, 0, 1, 2, 2, 3, 2])
    assert Documents(ids=ids).cover(*tiling(8, 8, 4, 4)).tolist() == [[1, 0], [0, 1]]


def test_coverage_of_a_function_is_exact_on_small_tiles_and_open_on_large() -> None:
    mask = Where(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)
    assert mask.cover(*tiling(65, 129, 64, 64)).tolist() == looked_up(Causal(), 65, 129, 64, 64)
    assert mask.coverage(range(0, 513), range(500, 501)) == Coverage.PARTIAL


def test_coverage_of_a_function_never_asks_past_its_tiles() -> None:
    table = torch.arange(65)
    mask = Where(lambda b, h, q_idx, kv_idx: table[q_idx] >= table[kv_idx])
    assert mask.cover(*tiling(65, 65, 64, 32)).tolist() == [[1, 1, 0], [2, 2, 2]]


def test_coverage_of_a_function_that_varies_is_that_of_all_rows_and_heads() -> None:
    mask = Where(lambda b, h, q_idx, kv_idx: kv_idx + 0 * q_idx < 4 * (b + h)).bind(2, 2)
    columns = [mask.coverage((0, 4), (start, start + 4)) for start in (0, 4, 8)]
    assert columns == [Coverage.PARTIAL, Coverage.PARTIAL, Coverage.EMPTY]
    assert mask.select(1).coverage((0, 4), (0, 4)) == Coverage.FULL


@pytest.mark.parametrize(
    ("mask", "most"),
    [
        (Causal() & Window(64), 2 * 64),
        (StreamingSinks(sinks=4, window=64), 3 * 64),
        (Causal() & Documents(lengths=[64] * 64), 64),
        (RandomBlocks(64, per_row=2, length=4096), 2 * 64),
        (BigBird(64, 4096), (3 + 3 + 2) * 64 + 2 * 64),
        (Longformer(64, 1), 3 * 64 + 2 * 64),
    ],
    ids=repr,
)
def test_tiles_to_visit_follow_the_mask_and_not_the_square(mask: Mask, most: int) -> None:
    visited = (mask.cover(*tiling(4096, 4096, 64, 64)) != Coverage.EMPTY).sum()
    assert 0 < visited <= most


def test_joins_take_the_least_the_most_and_the_opposite() -> None:
    tiles = tiling(128, 128, 32, 32)
    one, other = Causal().cover(*tiles), Window(40).cover(*tiles)
    assert torch.equal((Causal() & Window(40)).cover(*tiles), torch.minimum(one, other))
    assert torch.equal((Causal() | Window(40)).cover(*tiles), torch.maximum(one, other))
    assert torch.equal((~Causal()).cover(*tiles), 2 - one)


def test_a_mask_that_only_says_what_it_allows_is_partial_everywhere() -> None:
    class Own(Mask):
        def allows(self, q: Tensor, k: Tensor) -> Tensor:
            return q > k

    assert Own().cover(*tiling(4, 6, 2, 2)).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_queries_before_the_first_key_are_not_global():
    # More queries than keys: the first ones sit before position 0.
    assert Global(2).coverage((-1, 0), (5, 6)) is Coverage.EMPTY
    assert Global([0, 1]).coverage((-1, 0), (5, 6)) is Coverage.EMPTY
    assert Global(2).coverage((-1, 1), (5, 6)) is Coverage.PARTIAL
