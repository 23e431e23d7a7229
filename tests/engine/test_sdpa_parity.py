"""`regard.sdpa` against PyTorch's own function, over what PyTorch documents."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from effort import examples
from engine.harness import DTYPES, in_every_dtype, own_random_state
from regard import attention, sdpa
from regard.errors import DtypeError, MaskError, RegardError, ShapeError
from regard.masks import Causal, Dense, Window

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


def agree(q, k, v, attn_mask=None, theirs=None, **options):
    """Output and gradients agree with PyTorch's, that of a float mask included. It is given what is `theirs`
    in place of a mask and options, if that is something else."""
    results = []
    for function in (sdpa, scaled_dot_product_attention):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        if attn_mask is not None and attn_mask.requires_grad:
            leaves.append(attn_mask.detach().requires_grad_())
        mask = leaves[3] if len(leaves) > 3 else attn_mask
        given = {"attn_mask": mask, **options}
        if theirs is not None and function is not sdpa:
            given = theirs
        out = function(*leaves[:3], **given)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out.dtype)
        results.append([out, *torch.autograd.grad(out, leaves, upstream)])
    tolerance = TOLERANCE[q.dtype]
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


def tensors(*shapes, dtype=torch.float32):
    return [torch.randn(shape).to(dtype) for shape in shapes]


LEADS = {
    "one sequence": [(5, 8), (7, 8), (7, 8)],
    "heads": [(3, 5, 8), (3, 7, 8), (3, 7, 8)],
    "batch and heads": [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)],
    "two batches": [(2, 3, 4, 5, 8), (2, 3, 4, 7, 8), (2, 3, 4, 7, 8)],
    "batches that broadcast": [(2, 1, 4, 5, 8), (1, 3, 4, 7, 8), (1, 1, 4, 7, 8)],
    "ranks that broadcast": [(4, 5, 8), (2, 4, 7, 8), (7, 8)],
    "heads that broadcast": [(2, 4, 5, 8), (2, 1, 7, 8), (1, 4, 7, 8)],
    "values of another dim": [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 3)],
    "no query": [(2, 3, 0, 8), (2, 3, 7, 8), (2, 3, 7, 8)],
    "no key": [(2, 3, 5, 8), (2, 3, 0, 8), (2, 3, 0, 8)],
    "no batch": [(0, 3, 5, 8), (0, 3, 7, 8), (0, 3, 7, 8)],
}


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_leading_dimensions_broadcast_as_in_pytorch(lead, is_causal):
    agree(*tensors(*LEADS[lead]), is_causal=is_causal)


@in_every_dtype
@pytest.mark.parametrize(("q", "k"), [(5, 7), (7, 5), (1, 65), (65, 1), (300, 500)])
def test_the_causal_mask_is_aligned_at_the_top_left(q, k, dtype):
    agree(*tensors((2, 3, q, 8), (2, 3, k, 8), (2, 3, k, 8), dtype=dtype), is_causal=True)


MASK_SHAPES = [(5, 7), (1, 7), (5, 1), (1, 1), (4, 5, 7), (1, 5, 7), (2, 1, 5, 7), (2, 4, 1, 7), (2, 4, 5, 7)]


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
@in_every_dtype
def test_bool_masks_of_any_shape_say_who_participates(shape, dtype):
    agree(*tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8), dtype=dtype), torch.rand(shape) < 0.6)


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
@pytest.mark.parametrize("learns", [False, True])
@in_every_dtype
def test_float_masks_of_any_shape_are_added_and_learn(shape, learns, dtype):
    mask = torch.randn(shape).to(dtype).requires_grad_(learns)
    agree(*tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8), dtype=dtype), mask)


@pytest.mark.parametrize("shape", [(2, 1, 4, 5, 7), (3, 1, 5, 7), (2, 3, 1, 1, 7), (5, 7)], ids=str)
def test_masks_of_more_batches_broadcast(shape):
    qkv = tensors((2, 3, 4, 5, 8), (2, 3, 4, 7, 8), (2, 3, 4, 7, 8))
    agree(*qkv, torch.rand(shape) < 0.6)
    agree(*qkv, torch.randn(shape))


@pytest.mark.parametrize("as_float", [False, True])
def test_rows_with_nothing_to_attend_to_give_zeros_and_no_nan(as_float):
    mask = torch.rand(5, 7) < 0.6
    mask[2] = False
    if as_float:
        mask = torch.zeros(5, 7).masked_fill(~mask, -torch.inf)
    q, k, v = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    agree(q, k, v, mask)
    assert not sdpa(q, k, v, mask)[:, :, 2].any()


@pytest.mark.parametrize("as_float", [False, True])
@pytest.mark.parametrize(("q", "k"), [(5, 7), (7, 5)])
def test_a_mask_and_a_causal_mask_are_both_applied(q, k, as_float):
    """PyTorch's fused kernel applied both up to 2.13, and its other path refused; since 2.15 all do."""
    mask = torch.randn(q, k) if as_float else torch.rand(q, k) < 0.8
    past = torch.ones(q, k, dtype=torch.bool).tril()
    joined = mask.masked_fill(~past, -torch.inf) if as_float else mask & past
    given = tensors((2, 4, q, 8), (2, 4, k, 8), (2, 4, k, 8))
    agree(*given, mask, theirs={"attn_mask": joined}, is_causal=True)


@pytest.mark.parametrize("scale", [0.0, 0.3, -1.0, 4])
def test_the_scale_replaces_the_root_of_the_dim(scale):
    agree(*tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)), scale=scale)


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)],
        [(2, 4, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)],
        [(4, 5, 8), (2, 7, 8), (2, 7, 8)],
        [(2, 3, 4, 5, 8), (2, 3, 2, 7, 8), (2, 3, 2, 7, 8)],
        [(2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)],
    ],
    ids=str,
)
@pytest.mark.parametrize("masked", [False, True])
def test_grouped_heads_share_keys_as_in_pytorch(shapes, masked):
    mask = torch.rand(5, 7) < 0.6 if masked else None
    agree(*tensors(*shapes), mask, enable_gqa=True)


@examples(80)
@given(data=st.data())
def test_any_documented_call_agrees_with_pytorch(data):
    lead = data.draw(st.lists(st.integers(1, 3), max_size=3))
    q, k, dim = data.draw(st.integers(1, 33)), data.draw(st.integers(1, 65)), data.draw(st.integers(1, 17))
    v_dim = data.draw(st.sampled_from([dim, dim + 3]))
    dtype = data.draw(st.sampled_from(DTYPES))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    full = (*lead, q, k)
    kind = data.draw(st.sampled_from(["none", "causal", "bool", "float"]))
    shape = [size if data.draw(st.booleans()) else 1 for size in full]
    mask = {"bool": torch.rand(shape) < 0.7, "float": torch.randn(shape).to(dtype)}.get(kind)
    scale = data.draw(st.none() | st.floats(0.1, 1.0))
    shapes = (*lead, q, dim), (*lead, k, dim), (*lead, k, v_dim)
    with own_random_state():
        agree(*tensors(*shapes, dtype=dtype), mask, is_causal=kind == "causal", scale=scale)


def test_a_regard_mask_is_welcome_and_sits_at_the_end():
    q, k, v = tensors((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    mask = Causal() & Window(3)
    assert torch.equal(sdpa(q, k, v, mask), attention(q, k, v, mask))
    torch.testing.assert_close(sdpa(q, k, v, mask), sdpa(q, k, v, mask.dense(5, 7)))
    both = Dense(mask.dense(5, 7) & Causal(shift=5 - 7).dense(5, 7))
    torch.testing.assert_close(sdpa(q, k, v, mask, is_causal=True), sdpa(q, k, v, both))


REFUSALS = [
    (
        {"attn_mask": torch.ones(5, 7, dtype=torch.int64)},
        MaskError,
        "attn_mask is torch.int64; it must be bool (True = participates) or float.",
    ),
    (
        {"attn_mask": [[True]]},
        MaskError,
        "attn_mask is a list; it must be a bool or float tensor, or a regard mask.",
    ),
    (
        {"attn_mask": torch.ones(5, 6, dtype=torch.bool)},
        ShapeError,
        "attn_mask has shape (5, 6), which does not broadcast to (2, 4, 5, 7).",
    ),
    (
        {"attn_mask": torch.ones(3, 2, 4, 5, 7, dtype=torch.bool)},
        ShapeError,
        "attn_mask has shape (3, 2, 4, 5, 7), which does not broadcast to (2, 4, 5, 7).",
    ),
    ({"query": [1.0]}, DtypeError, "query is a list; it must be a torch.Tensor."),
    (
        {"key": torch.randn(8)},
        ShapeError,
        "query, key and value have shapes (2, 4, 5, 8), (8,), (2, 4, 7, 8); each must be (…, length, dim).",
    ),
    (
        {"key": torch.randn(2, 2, 7, 8)},
        ShapeError,
        "the leading dimensions of query, key and value ((2, 4, 5, 8), (2, 2, 7, 8), (2, 4, 7, 8)) do not "
        "broadcast. For grouped heads pass enable_gqa=True.",
    ),
    (
        {"key": torch.randn(2, 3, 7, 8), "value": torch.randn(2, 3, 7, 8), "enable_gqa": True},
        ShapeError,
        "q has 4 heads and k has 3; q heads must be a multiple of k heads.",
    ),
    (
        {"value": torch.randn(2, 4, 6, 8)},
        ShapeError,
        "k has length 7 and v has length 6; each key needs exactly one value.",
    ),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSALS, ids=[m[:40] for _, _, m in REFUSALS])
def test_what_cannot_be_computed_is_refused_in_words(given, error, message):
    call = dict(
        zip(("query", "key", "value"), tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)), strict=True)
    )
    with pytest.raises(error, match=f"^{re.escape(message)}$") as caught:
        sdpa(**{**call, **given})
    assert isinstance(caught.value, RegardError)
    assert isinstance(caught.value, ValueError)


def test_a_dropout_of_one_gives_zeros_and_zero_gradients():
    q, k, v = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
    ours = sdpa(q, k, v, dropout_p=1.0, is_causal=True)
    assert torch.equal(ours, scaled_dot_product_attention(q, k, v, dropout_p=1.0, is_causal=True))
    for gradient in torch.autograd.grad(ours.sum(), (q, k, v)):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("heads", [(2, 1), (1, 2), (4, 2), (2, 4), (1, 4)], ids=str)
def test_key_and_value_may_have_head_counts_of_their_own(heads):
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, heads[0], 7, 8), torch.randn(2, heads[1], 7, 8)
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(sdpa(q, k, v, enable_gqa=True), expected)
    torch.testing.assert_close(sdpa(q[0], k[0], v[0], enable_gqa=True), expected[0])


def test_head_counts_that_do_not_divide_are_named():
    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 7, 8), torch.randn(1, 3, 7, 8)
    with pytest.raises(ShapeError) as caught:
        sdpa(q, k, v, enable_gqa=True)
    assert str(caught.value) == (
        "query has 4 heads, key 2 and value 3; with enable_gqa the head counts of key and value must divide "
        "that of query."
    )
