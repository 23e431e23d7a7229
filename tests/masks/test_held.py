"""Masks that hold a tensor: Padding, Documents and Dense."""

from __future__ import annotations

import re

import pytest
import torch

from regard.errors import MaskError
from regard.masks import Dense, Documents, Mask, Padding


def test_padding_from_lengths_marks_the_first_keys_of_each_row() -> None:
    mask = Padding.from_lengths([0, 2, 3], k=3)
    assert mask.valid.tolist() == [[False] * 3, [True, True, False], [True] * 3]
    assert mask == Padding.from_lengths(torch.tensor([0, 2, 3]), k=3)


def test_a_mask_stays_what_it_was_when_its_tensor_changes() -> None:
    valid, ids, allowed = torch.ones(3).bool(), torch.zeros(3, dtype=torch.int64), torch.ones(3, 3).bool()
    held = [Padding(valid), Documents(ids=ids), Dense(allowed)]
    before = [mask.dense(3) for mask in held]
    valid[0], ids[0], allowed[0, 0] = False, 1, False
    assert all(torch.equal(mask.dense(3), matrix) for mask, matrix in zip(held, before, strict=True))


def test_documents_by_length_and_by_id_are_the_same_mask() -> None:
    by_length, by_id = Documents(lengths=[2, 1]), Documents(ids=torch.tensor([0, 0, 1], dtype=torch.int32))
    assert by_length == by_id
    assert hash(by_length) == hash(by_id)
    assert by_length == Documents(lengths=torch.tensor([2, 1]))
    assert by_length.lengths == (2, 1)


def test_one_row_is_shared_by_every_batch() -> None:
    flags = torch.ones(1, 4, dtype=torch.bool)
    for mask in (Padding(flags), Documents(ids=flags.long()), Dense(flags[None].expand(1, 1, 4, 4))):
        assert mask.batch is None
        assert mask.select(5) is mask
        assert mask.dense(4).shape == (1, 1, 4, 4)
        mask.check(q=4, k=4, batch=7, heads=2)


def test_expanded_batch_and_heads_of_a_dense_mask_are_stored_once() -> None:
    mask = Dense(torch.eye(3, dtype=torch.bool).expand(64, 32, 3, 3))
    assert mask.allowed.shape == (1, 1, 3, 3)
    mask.check(q=3, k=3, batch=64, heads=32)


def test_dense_distinguishes_batch_rows_and_heads() -> None:
    mask = Dense(torch.rand(2, 3, 4, 5) < 0.5)
    assert (mask.batch, mask.heads) == (2, 3)
    assert (mask.select(1).batch, mask.select(1).heads) == (None, 3)


CHECKS: list[tuple[Mask, tuple[int, int, int, int], str]] = [
    (
        Padding(torch.ones(2, 100, dtype=torch.bool)),
        (100, 128, 2, 1),
        "Padding holds 100 keys and k has 128; give it one flag per key.",
    ),
    (
        Padding(torch.ones(2, 100, dtype=torch.bool)),
        (100, 100, 3, 1),
        "Padding holds 2 batch rows and q has 3; give it one row per sequence.",
    ),
    (
        Documents(lengths=[5, 7]),
        (16, 16, 1, 1),
        "Documents holds 12 positions and k has 16; lengths must add up to k, and ids name every key.",
    ),
    (
        Documents(lengths=[5, 7]),
        (13, 12, 1, 1),
        "Documents holds 12 positions and q has 13; every query must sit on a key.",
    ),
    (
        Documents(ids=torch.zeros(2, 4, dtype=torch.int64)),
        (4, 4, 1, 1),
        "Documents holds 2 batch rows and q has 1; give it one row of ids per sequence.",
    ),
    (
        Dense(torch.ones(1, 9, dtype=torch.bool)),
        (4, 9, 1, 1),
        "Dense holds 1 queries and q has 4; give it one row per query; "
        "a flag per key alone belongs in Padding.",
    ),
    (
        Dense(torch.ones(4, 9, dtype=torch.bool)),
        (4, 8, 1, 1),
        "Dense holds 9 keys and k has 8; give it one column per key.",
    ),
    (
        Dense(torch.ones(2, 1, 4, 9, dtype=torch.bool)),
        (4, 9, 3, 1),
        "Dense holds 2 batch rows and q has 3; give it one matrix per sequence, or a batch of 1.",
    ),
    (
        Dense(torch.ones(1, 2, 4, 9, dtype=torch.bool)),
        (4, 9, 3, 8),
        "Dense holds 2 heads and q has 8; give it one matrix per query head, or 1 for all.",
    ),
]


@pytest.mark.parametrize(("mask", "sizes", "message"), CHECKS)
def test_masks_made_for_other_sizes_say_which(
    mask: Mask, sizes: tuple[int, int, int, int], message: str
) -> None:
    with pytest.raises(MaskError, match=f"^{re.escape(message)}$"):
        mask.check(*sizes)


def test_matrix_and_pairs_check_the_lengths_too() -> None:
    for ask in (Padding(torch.ones(3, dtype=torch.bool)).dense, Dense(torch.ones(4, 3).bool()).pairs):
        with pytest.raises(MaskError, match="holds 3 keys and k has 5"):
            ask(4, 5)


def test_a_row_that_is_not_there_cannot_be_selected() -> None:
    message = "Padding(valid=<2 × 3, 3 true>) has 2 batch rows and row 2 was asked for."
    with pytest.raises(MaskError, match=re.escape(message)):
        Padding.from_lengths([1, 2], 3).select(2)
