"""`Uncut`: a mask of products of sets, held to the matrix it stands for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from regard.atlas.cuts import Box, Uncut, joined
from regard.errors import MaskError
from regard.masks import Causal, Coverage

HEADS = 3


def flags(n):
    return st.one_of(st.none(), st.lists(st.booleans(), min_size=n, max_size=n).map(torch.tensor))


@st.composite
def masks(draw):
    n = draw(st.sampled_from([1, 2, 7, 15]))
    some = st.sets(st.integers(0, HEADS - 1), min_size=1).map(lambda chosen: tuple(sorted(chosen)))
    heads = st.one_of(st.none(), some)
    boxes = draw(st.lists(st.builds(Box, heads, flags(n), flags(n)), min_size=1, max_size=4))
    return Uncut(tuple(boxes), HEADS, n)


def matrix(mask):
    """Which pairs stay, head by head, pair by pair."""
    kept = torch.ones(HEADS, mask.length, mask.length, dtype=torch.bool)
    for box in mask.boxes:
        for h in range(HEADS) if box.heads is None else box.heads:
            for i in range(mask.length):
                for j in range(mask.length):
                    if (box.queries is None or box.queries[i]) and (box.keys is None or box.keys[j]):
                        kept[h, i, j] = False
    return kept


@examples(30)
@given(masks())
def test_a_mask_of_boxes_is_the_matrix_of_its_boxes(mask):
    dense = mask.dense(mask.length)
    assert torch.equal(dense[0].expand(HEADS, -1, -1), matrix(mask))
    assert dense.shape[1] == (mask.heads or 1)


@examples(30)
@given(masks(), st.data())
def test_the_coverage_of_a_tile_is_what_the_matrix_says(mask, data):
    edges = [
        sorted(data.draw(st.sets(st.integers(0, mask.length), min_size=2, max_size=2))) for _ in range(2)
    ]
    tile = matrix(mask)[:, slice(*edges[0]), slice(*edges[1])]
    said = mask.coverage(tuple(edges[0]), tuple(edges[1]))
    if said is Coverage.FULL:
        assert bool(tile.all())
    elif said is Coverage.EMPTY:
        assert not bool(tile.any())
    elif len(mask.boxes) == 1 and mask.boxes[0].heads is None:
        assert bool(tile.any())
        assert not bool(tile.all())


@examples(30)
@given(masks())
def test_joined_boxes_cut_the_same_pairs(mask):
    fewer = Uncut(joined(mask.boxes), HEADS, mask.length)
    assert len(fewer.boxes) <= len(mask.boxes)
    assert torch.equal(matrix(fewer), matrix(mask))


def test_a_cut_key_is_one_box_however_many_edges_named_it():
    keys = torch.eye(9, dtype=torch.bool)
    (box,) = joined([Box((1,), None, row) for row in keys])
    assert bool(box.keys.all())


def test_a_mask_of_boxes_joins_with_others():
    mask = Causal() & Uncut((Box(None, None, torch.tensor([True, False, False])),), HEADS, 3)
    assert mask.draw(3) == ". . .\n. # .\n. # #"


@pytest.mark.parametrize(
    ("length", "heads", "message"),
    [(4, 3, "Uncut holds 5 positions and k has 4"), (5, 2, "Uncut holds 3 heads and q has 2")],
)
def test_a_mask_for_another_text_is_refused(length, heads, message):
    mask = Uncut((Box((0,), None, torch.ones(5, dtype=torch.bool)),), HEADS, 5)
    with pytest.raises(MaskError, match=message):
        mask.check(length, length, 1, heads)
