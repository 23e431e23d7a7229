"""What `trace` takes, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from regard.errors import DtypeError, MapError, MaskError, RegardError, ScoreError, ShapeError
from regard.tracing import trace


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_whole_numbers_of_any_kind_are_computed_in_float64(kind):
    q, k = kind(((1, 0),)), kind(((1, 0), (0, 1)))
    assert trace(q, k, k).weights.dtype == torch.float64


def test_a_float_tensor_keeps_its_dtype_and_half_precision_is_computed_in_float32():
    q = torch.randn(3, 4)
    assert trace(q, q, q).output.dtype == torch.float32
    assert trace(*[q.bfloat16()] * 3).output.dtype == torch.float32
    assert trace(q, q, q.tolist()).output.dtype == torch.float64


def test_read_only_and_reversed_numpy_arrays_are_read():
    q = np.arange(6.0).reshape(3, 2)
    q.flags.writeable = False
    assert trace(q[::-1], q, q).q[0].tolist() == [4.0, 5.0]


def test_a_trace_needs_no_gradient_and_does_not_change_with_its_input():
    q = torch.ones(2, 4, requires_grad=True)
    steps = trace(q, q, q)
    with torch.no_grad():
        q.zero_()
    assert not steps.output.requires_grad
    assert steps.q.sum() == 8


def test_autocast_does_not_round_a_trace():
    q = torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        inside = trace(q, q, q).weights
    assert torch.equal(inside, trace(q, q, q).weights)


ONE = {"q": [[1.0, 2.0]], "k": [[1.0, 2.0]], "v": [[1.0, 2.0]]}
X = [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, RegardError, "got no q and no k and no v; give q, k and v, or x with w_q, w_k and w_v."),
        ({"q": X, "k": X}, RegardError, "trace got no v; give q, k and v"),
        ({"x": X, "w_q": X}, RegardError, "got x without w_k and w_v; from x it needs w_q, w_k and w_v."),
        ({"x": X, "q": X}, RegardError, "got x and q; q, k and v are made from x. Give one or the other."),
        (ONE | {"w_o": X, "heads": 2}, RegardError, "got w_o and heads without x; they say how q, k and v"),
        (ONE | {"kv_heads": 1}, RegardError, "Give x instead of q, k and v, or leave them out."),
        (ONE | {"q": [[1], [1, 2]]}, ShapeError, "q is a list that cannot be read as numbers ("),
        (ONE | {"q": "ab"}, ShapeError, "Give a torch.Tensor, a numpy array, or lists of equal length."),
        (ONE | {"q": torch.ones(1, 2).bool()}, DtypeError, "q is torch.bool; trace needs real numbers."),
        (ONE | {"q": [[]]}, ShapeError, "q has shape (1, 0) and holds no number; trace needs at least one."),
        (ONE | {"k": [[1.0]]}, ShapeError, "q has dim 2 and k has dim 1; a dot product needs equal dims."),
        (ONE | {"mask": torch.ones(1, 1).bool()}, MaskError, "wrap it: Dense(mask)"),
        (ONE | {"score": "dot"}, ScoreError, "score is a str; it must be a score function"),
        (ONE | {"sink": [1, 2]}, ShapeError, "sink is (2,); it must be one logit per query head"),
        (ONE | {"tokens": "cat"}, ShapeError, "tokens is one string, 'cat'; give a list of strings,"),
        (
            ONE | {"tokens": []},
            ShapeError,
            "tokens holds 0 names and there are 1 queries; give one name each.",
        ),
        (ONE | {"key_tokens": "ab".split}, ShapeError, "key_tokens is a builtin_function_or_method"),
    ],
)
def test_a_refusal_says_what_was_given_and_what_to_do(arguments, error, text):
    with pytest.raises(error, match=re.escape(text)):
        trace(**arguments)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"x": torch.ones(3)}, "x has shape (3,); it must be (length, d_model) or (batch, length, d_model)."),
        ({"context": torch.ones(1, 3, 4)}, "x has shape (3, 4) and context (1, 3, 4); they may differ in"),
        (
            {"w_q": torch.ones(2, 4)},
            "w_q has shape (2, 4) and x has dim 4; w_q must be (4, out). torch.nn.Lin",
        ),
        ({"w_k": torch.ones(4, 3)}, "w_k has 3 columns, which kv_heads=2 does not divide; every head gets"),
        ({"w_o": torch.ones(3, 4)}, "w_o has shape (3, 4); it must be (4, out): 2 heads of 2 numbers each."),
        ({"heads": 0}, "heads is 0; it must be a whole number, at least 1."),
        ({"kv_heads": 1.5}, "kv_heads is 1.5; it must be a whole number, at least 1."),
        ({"heads": 4, "kv_heads": 4, "w_k": torch.ones(4, 8)}, "q has dim 1 and k has dim 2"),
    ],
)
def test_matrices_that_do_not_fit_are_refused_with_the_shape_they_should_have(change, text):
    w = torch.ones(4, 4)
    with pytest.raises(ShapeError, match=re.escape(text)):
        trace(**{"x": torch.ones(3, 4), "w_q": w, "w_k": w, "w_v": w, "w_o": w, "heads": 2, **change})


def test_a_map_of_4096_pairs_is_traced_and_a_larger_one_refused():
    assert len(trace(*[torch.ones(64, 2)] * 3).weights) == 64
    text = (
        "trace got 65 queries × 64 keys = 4,160 pairs; it keeps every cell of every step and stops at 4,096. "
        "Trace fewer tokens, or read tiles of the large map: regard.observe(q, k, v).map."
    )
    with pytest.raises(MapError, match=re.escape(text)):
        trace(torch.ones(65, 2), torch.ones(64, 2), torch.ones(64, 2))
    with pytest.raises(MapError, match="65 queries × 65 keys"):
        trace(x=torch.ones(65, 1), w_q=[[1]], w_k=[[1]], w_v=[[1]])


def test_more_than_64_maps_are_refused():
    q = torch.ones(5, 13, 1, 2)
    with pytest.raises(MapError, match="5 batch rows × 13 heads = 65 maps; it stops at 64"):
        trace(q, q, q)
