"""Joins are the algebra of sets, and ask every part."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import MaskError
from regard.masks import And, Causal, Chunk, Dense, Mask, Not, Or, Padding, Prefix, Where, Window
from strategies import lengths, masks


@given(data=st.data(), q=lengths(), k=lengths())
def test_joins_are_and_or_and_not_of_matrices(data: st.DataObject, q: int, k: int) -> None:
    one, other = data.draw(masks(q, k, 2, 2, leaves=2)), data.draw(masks(q, k, 2, 2, leaves=2))
    assert torch.equal((one & other).dense(q, k), one.dense(q, k) & other.dense(q, k))
    assert torch.equal((one | other).dense(q, k), one.dense(q, k) | other.dense(q, k))
    assert torch.equal((~one).dense(q, k), ~one.dense(q, k))


@given(data=st.data(), n=lengths())
def test_de_morgan_holds(data: st.DataObject, n: int) -> None:
    one, other = data.draw(masks(n, n, 2)), data.draw(masks(n, n, 2))
    assert torch.equal((~(one & other)).dense(n), (~one | ~other).dense(n))


def test_joins_of_one_kind_are_flat() -> None:
    a, b, c = Causal(), Window(3), Chunk(4)
    assert (a & b) & c == a & (b & c) == And(a, b, c)
    assert (a | b) | c == a | (b | c) == Or(a, b, c)
    assert (a & (b | c)).parts == (a, Or(b, c))


def test_not_of_not_is_the_mask_itself() -> None:
    mask = Causal()
    assert ~~mask is mask
    assert ~mask == Not(mask)


def test_joins_differ_by_kind_and_order() -> None:
    assert And(Causal(), Window(3)) != Or(Causal(), Window(3))
    assert Causal() & Window(3) != Window(3) & Causal()


def test_a_join_of_nothing_is_refused() -> None:
    with pytest.raises(MaskError, match="And got no masks; give it at least one"):
        And()


@pytest.mark.parametrize("tensor", [torch.ones(3, 3, dtype=torch.bool), torch.ones(3, 3)])
def test_joining_with_a_tensor_names_the_remedy(tensor: torch.Tensor) -> None:
    message = (
        f"a mask was joined with a {tensor.dtype} tensor of shape (3, 3); wrap the tensor: "
        "Dense(tensor) for a matrix, Padding(tensor) for one flag per key (bool, True = may attend)."
    )
    joins = [
        lambda: Causal() & tensor,
        lambda: Causal() | tensor,
        lambda: tensor & Causal(),
        lambda: tensor | Causal(),
    ]
    for join in joins:
        with pytest.raises(MaskError, match=re.escape(message)):
            join()


def test_joining_with_anything_else_is_refused() -> None:
    with pytest.raises(MaskError, match=r"a mask was joined with a bool; masks join only with masks\.$"):
        Causal() & True
    message = "joined with a function; masks join only with masks. Wrap a mask_mod function: Where(fn)."
    with pytest.raises(MaskError, match=re.escape(message)):
        Causal() | (lambda b, h, q_idx, kv_idx: q_idx > kv_idx)


def test_joined_masks_must_agree_on_batch_and_heads() -> None:
    two, three = Padding.from_lengths([1, 2], 2), Padding.from_lengths([1, 2, 2], 2)
    message = (
        "Padding(valid=<2 × 2, 3 true>) holds 2 batch rows and Padding(valid=<3 × 2, 5 true>) holds 3; "
        "masks that are joined must agree."
    )
    with pytest.raises(MaskError, match=re.escape(message)):
        two & three
    flags = torch.ones(1, 5, 2, 2, dtype=torch.bool)
    with pytest.raises(MaskError, match=r"holds 5 heads and .* holds 4; masks that are joined must agree\."):
        Dense(flags) | ~Dense(flags[:, :4])


def test_a_join_varies_over_what_its_parts_vary_over() -> None:
    rows, heads = Padding.from_lengths([1, 2], 2), Dense(torch.ones(1, 3, 2, 2, dtype=torch.bool))
    mask = Causal() & ~rows & (heads | Prefix(1))
    assert (mask.batch, mask.heads) == (2, 3)


@given(data=st.data(), q=lengths(), k=lengths(), batch=st.integers(1, 3), heads=st.integers(1, 3))
def test_a_selected_row_is_that_row_of_the_matrix(
    data: st.DataObject, q: int, k: int, batch: int, heads: int
) -> None:
    mask = data.draw(masks(q, k, batch, heads))
    matrix = mask.dense(q, k)
    for row in range(batch):
        selected = mask.select(row)
        assert selected.batch is None
        expected = matrix if mask.batch is None else matrix[row : row + 1]
        assert torch.equal(selected.dense(q, k), expected)


def test_joins_bind_their_functions_and_keep_the_rest() -> None:
    where = Where(lambda b, h, q_idx, kv_idx: kv_idx <= b + h)
    mask = (Causal() | where).bind(2, 3)
    assert mask.dense(1, 9).shape == (2, 3, 1, 9)
    plain = Causal() & Window(2)
    assert plain.bind(2, 3) is plain
    assert plain.select(1) is plain
    assert plain.to("cpu") is plain


def test_joins_check_every_part() -> None:
    mask: Mask = Causal() | (Window(3) & ~Padding(torch.ones(5, dtype=torch.bool)))
    mask.check(q=2, k=5, batch=1, heads=1)
    with pytest.raises(MaskError, match="Padding holds 5 keys and k has 6; give it one flag per key"):
        mask.check(q=2, k=6, batch=1, heads=1)
