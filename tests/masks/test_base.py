"""What every mask can do, whatever its shape."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard.masks
from regard.errors import MaskError
from regard.masks import (
    BigBird,
    Causal,
    Chunk,
    Coverage,
    Dense,
    Documents,
    Global,
    Mask,
    Padding,
    Prefix,
    RandomBlocks,
    Strided,
    Where,
    Window,
)
from strategies import lengths, masks

SHAPES = [Causal(), Causal(-1), Window(3), Window(3, 1), Chunk(4), Chunk(4, 1), Prefix(2), Global(2)]
SHAPES += [Global((1, 5)), Strided(3), RandomBlocks(2, 1, 8), RandomBlocks(2, 1, 8, seed=4)]
HELD = [
    Documents(lengths=[3, 5]),
    Documents(ids=torch.tensor([[0] * 8, [1] * 8])),
    Padding.from_lengths([2, 8], 8),
    Dense(torch.ones(8, 8, dtype=torch.bool)),
]


def test_every_public_name_is_exported() -> None:
    assert sorted(regard.masks.__all__) == regard.masks.__all__
    assert all(hasattr(regard.masks, name) for name in regard.masks.__all__)


@given(data=st.data(), q=lengths(), k=lengths())
def test_tile_is_a_piece_of_the_matrix(data: st.DataObject, q: int, k: int) -> None:
    mask = data.draw(masks(q, k, batch=2, heads=2))
    row, column = data.draw(st.integers(0, q - 1)), data.draw(st.integers(0, k - 1))
    piece = mask.tile((row + k - q, k), range(column, k))
    assert torch.equal(piece, mask.dense(q, k)[..., row:, column:])


def test_tile_and_matrix_own_their_cells() -> None:
    for matrix in (Prefix(2).dense(3), Padding(torch.tensor([True, False, True])).dense(3)):
        matrix[0, 0] = False
        assert matrix[1, 0]


def test_matrix_of_no_queries_or_no_keys_is_empty() -> None:
    assert Causal().dense(0, 5).shape == (0, 5)
    assert Causal().dense(5, 0).shape == (5, 0)


def test_coverage_of_one_tile_is_an_enum() -> None:
    assert Causal().coverage(range(4, 8), range(0, 5)) is Coverage.FULL
    assert Causal().coverage((4, 8), (5, 6)) is Coverage.PARTIAL
    assert Causal().coverage((4, 8), (8, 9)) is Coverage.EMPTY


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (range(0, 8, 2), "q is range(0, 8, 2); a tile is a range of positions with step 1."),
        (range(3, 3), "q is range(3, 3), which holds no position; a tile holds at least one."),
        ((5, 2), "q is (5, 2), which holds no position; a tile holds at least one."),
    ],
)
def test_ranges_that_are_no_tile_are_refused(q: range | tuple[int, int], message: str) -> None:
    for look in (Causal().coverage, Causal().tile):
        with pytest.raises(MaskError, match=re.escape(message)):
            look(q, range(2))


def test_drawing_has_a_line_per_query_and_a_sign_per_key() -> None:
    assert Causal().draw(2, 3) == "# # .\n# # #"
    assert Causal().draw(1) == "#"
    assert len(Causal().draw().splitlines()) == 8


def test_drawing_shows_the_row_and_head_that_were_asked_for() -> None:
    flags = torch.eye(4, dtype=torch.bool).view(2, 2, 2, 2)
    assert Dense(flags).draw(2, batch=1, head=0) == ". .\n# ."
    assert Padding.from_lengths([1, 2], 2).draw(1, 2, batch=1, head=5) == "# #"


def test_drawing_refuses_rows_and_heads_that_are_not_there() -> None:
    message = "draw got batch row 2 of a mask with 2; count from 0 to 1."
    with pytest.raises(MaskError, match=re.escape(message)):
        Padding.from_lengths([1, 2], 2).draw(2, batch=2)
    with pytest.raises(MaskError, match="draw got head -1 of a mask with 3; count from 0 to 2"):
        Dense(torch.ones(1, 3, 2, 2, dtype=torch.bool)).draw(2, head=-1)


@pytest.mark.parametrize("mask", [*SHAPES, Causal() & (Window(4) | ~Prefix(2)), BigBird(2, 8)], ids=repr)
def test_written_form_of_a_shape_is_code_that_makes_it(mask: Mask) -> None:
    assert eval(repr(mask), vars(regard.masks)) == mask


def test_written_form_leaves_out_defaults_and_brackets_joins() -> None:
    assert repr(Causal()) == "Causal()"
    assert repr(Causal(shift=2)) == "Causal(shift=2)"
    assert repr(Causal() & Window(4)) == "Causal() & Window(left=4)"
    assert repr(Window(4, 2)) == "Window(left=4, right=2)"
    assert repr(~(Causal() & (Prefix(1) | Chunk(2)))) == "~(Causal() & (Prefix(n=1) | Chunk(size=2)))"


def test_written_form_of_a_tensor_mask_is_short() -> None:
    assert repr(Padding.from_lengths([2, 8], 8)) == "Padding(valid=<2 × 8, 10 true>)"
    assert repr(Dense(torch.eye(3, dtype=torch.bool))) == "Dense(allowed=<3 × 3, 3 true>)"
    assert repr(Documents(lengths=[3, 5])) == "Documents(lengths=(3, 5))"
    assert repr(Documents(lengths=[1] * 100)) == "Documents(ids=<100>)"


def test_masks_are_equal_when_they_say_the_same_and_hash_alike() -> None:
    every = [
        *SHAPES,
        *HELD,
        ~Causal(),
        Causal() & Window(3),
        Causal() | Window(3),
        *(Causal() & m for m in HELD),
    ]
    for one, mask in enumerate(every):
        assert mask == copy.deepcopy(mask)
        assert hash(mask) == hash(copy.deepcopy(mask))
        assert all(mask != other for other in every[one + 1 :])
    assert len({*every, *copy.deepcopy(every)}) == len(every)


def test_masks_survive_pickling() -> None:
    for mask in (*SHAPES, *HELD, Causal() & HELD[0]):
        assert pickle.loads(pickle.dumps(mask)) == mask


def test_a_mask_is_not_equal_to_other_things() -> None:
    assert Causal() != 0
    assert Padding(torch.tensor([True])) != torch.tensor([True]).tolist()
    assert Padding(torch.tensor([[True]])) != Dense(torch.tensor([[True]]))


def test_a_mask_is_neither_true_nor_false() -> None:
    message = "Causal() is neither true nor false; join masks with & | ~, not with and, or, not."
    with pytest.raises(MaskError, match=re.escape(message)):
        _ = Causal() and Window(4)


def test_allows_stays_on_the_device_of_the_positions() -> None:
    q = torch.arange(8, device="meta")[:, None]
    k = torch.arange(8, device="meta")[None]
    for mask in (*SHAPES, *HELD, Where(lambda b, h, q_idx, kv_idx: q_idx > kv_idx), Causal() & HELD[1]):
        assert mask.allows(q, k).device.type == "meta"


@pytest.mark.gpu
def test_masks_say_the_same_on_a_gpu() -> None:
    for mask in (*SHAPES, *HELD, Where(lambda b, h, q_idx, kv_idx: q_idx > kv_idx), Causal() & HELD[1]):
        assert torch.equal(mask.dense(8, device="cuda").cpu(), mask.dense(8))
        moved = mask.to("cuda")
        assert torch.equal(moved.dense(8, device="cuda").cpu(), mask.dense(8))
        assert moved.pairs(8) == mask.pairs(8)
        assert moved == mask


@given(data=st.data(), q=lengths(), k=lengths())
def test_answers_keep_the_shape_of_any_positions(data: st.DataObject, q: int, k: int) -> None:
    mask = data.draw(masks(q, k, batch=2, heads=3))
    matrix = mask.dense(q, k)
    flat_q, flat_k = (torch.randint(n, (5,)) for n in (q, k))
    answers = mask.allows(flat_q + k - q, flat_k)
    assert answers.shape[-1] == 5
    assert answers.shape[:-1] in ((), (1, 1), (2, 1), (1, 3), (2, 3))
    assert torch.equal(answers, matrix[..., flat_q, flat_k])


def test_from_blocked_is_the_other_convention() -> None:
    blocked = torch.rand(3, 5) < 0.5
    assert torch.equal(Mask.from_blocked(blocked).dense(3, 5), ~blocked)


def test_from_mask_mod_counts_rows_as_flex_attention_does() -> None:
    def rule(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return q_idx >= kv_idx

    assert torch.equal(Mask.from_mask_mod(rule, q=3, k=5).dense(3, 5)[0, 0], torch.ones(3, 5).tril().bool())
    assert torch.equal(Mask.from_mask_mod(rule).dense(3, 5)[0, 0], Causal().dense(3, 5))


def test_shapes_do_not_vary_over_batch_or_heads() -> None:
    for mask in SHAPES:
        assert mask.batch is None
        assert mask.heads is None
        assert mask.select(3) is mask
        assert mask.bind(2, 3) is mask
        assert mask.to("cpu") is mask
        mask.check(q=3, k=8, batch=2, heads=5)
