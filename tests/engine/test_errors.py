"""What a user can get wrong about the tensors and the mask, and the words that help."""

from __future__ import annotations

import re

import pytest
import torch

from engine.harness import flags, given, refused
from regard import explain_dispatch
from regard.errors import DeviceError, DtypeError, MaskError, ShapeError
from regard.masks import Causal, Dense, Documents, Padding, Window

ANY_RANK = "it must be (batch, heads, length, dim), (batch, length, dim) or (length, dim)."
TENSORS = [
    (given(q=[[1.0]]), DtypeError, "q is a list; it must be a torch.Tensor."),
    (given(v=None), DtypeError, "v is a NoneType; it must be a torch.Tensor."),
    (
        given(q=torch.ones(2, 4, 5, 8, dtype=torch.int64)),
        DtypeError,
        "q is torch.int64; attention needs float64, float32, bfloat16 or float16. "
        "Convert it, for example q.float().",
    ),
    (
        given(k=torch.ones(2, 2, 7, 8, dtype=torch.complex64)),
        DtypeError,
        "k is torch.complex64; attention needs float64, float32, bfloat16 or float16. "
        "Convert it, for example k.float().",
    ),
    (given(q=torch.randn(8)), ShapeError, f"q has shape (8,); {ANY_RANK}"),
    (given(v=torch.randn(1, 2, 2, 7, 8)), ShapeError, f"v has shape (1, 2, 2, 7, 8); {ANY_RANK}"),
    (
        given(q=torch.randn(4, 5, 8)),
        ShapeError,
        "q, k and v differ in rank: q (4, 5, 8), k (2, 2, 7, 8), v (2, 2, 7, 8). "
        "Give all three the same rank.",
    ),
    (
        given(v=torch.randn(2, 2, 7, 8).double()),
        DtypeError,
        "q is torch.float32, k is torch.float32, v is torch.float64; they must share one dtype. "
        "Convert with .to(q.dtype).",
    ),
    (
        given(k=torch.randn(2, 2, 7, 8, device="meta")),
        DeviceError,
        "q is on cpu, k is on meta, v is on cpu; they must share one device. Move with .to(q.device).",
    ),
    (
        given(q=torch.randn(3, 4, 5, 8)),
        ShapeError,
        "q has batch 3, k has 2 and v has 2; they must be equal. Use .expand to share one batch row.",
    ),
    (
        given(v=torch.randn(2, 4, 7, 8)),
        ShapeError,
        "k has 2 heads and v has 4; they must be equal.",
    ),
    (
        {name: torch.randn(1, heads, 4, 8) for name, heads in (("q", 12), ("k", 5), ("v", 5))},
        ShapeError,
        "q has 12 heads and k has 5; q heads must be a multiple of k heads.",
    ),
    (
        {name: torch.randn(1, heads, 4, 8) for name, heads in (("q", 2), ("k", 4), ("v", 4))},
        ShapeError,
        "q has 2 heads and k has 4; q heads must be a multiple of k heads.",
    ),
    (
        given(q=torch.randn(2, 0, 5, 8)),
        ShapeError,
        "q has 0 heads of dim 8 and k has 2 of dim 8; each must be at least 1.",
    ),
    (
        given(q=torch.randn(2, 4, 5, 0), k=torch.randn(2, 2, 7, 0)),
        ShapeError,
        "q has 4 heads of dim 0 and k has 2 of dim 0; each must be at least 1.",
    ),
    (
        given(v=torch.randn(2, 2, 6, 8)),
        ShapeError,
        "k has length 7 and v has length 6; each key needs exactly one value.",
    ),
    (
        given(k=torch.randn(2, 2, 7, 6)),
        ShapeError,
        "q has dim 8 and k has dim 6; a dot product needs equal dims. "
        "Project one of them, or use General(weight).",
    ),
]

MASKS = [
    (
        given(mask=flags(5, 7)),
        MaskError,
        "mask is a torch.bool tensor of shape (5, 7); wrap it: Dense(mask), or Padding(mask) for one flag "
        "per key (True = may attend).",
    ),
    (
        given(mask=torch.zeros(5, 7)),
        MaskError,
        "mask is a torch.float32 tensor of shape (5, 7); additive masks belong in bias=; for a bool mask use "
        "Dense(mask.bool()), True = may attend.",
    ),
    (
        given(mask=lambda b, h, q, k: q >= k),
        MaskError,
        "mask is a function; it must be a regard mask such as Causal(). Wrap a mask_mod function: Where(fn).",
    ),
    (
        given(mask="causal"),
        MaskError,
        "mask is a str; it must be a regard mask such as Causal().",
    ),
    (
        given(mask=Causal),
        MaskError,
        "mask is the class Causal and not a mask; call it: Causal(...).",
    ),
    (
        given(mask=Padding(flags(2, 6))),
        MaskError,
        "Padding holds 6 keys and k has 7; give it one flag per key.",
    ),
    (
        given(mask=Causal() & Padding(flags(3, 7))),
        MaskError,
        "Padding holds 3 batch rows and q has 2; give it one row per sequence.",
    ),
    (
        given(mask=Dense(flags(7, 7))),
        MaskError,
        "Dense holds 7 queries and q has 5; give it one row per query; a flag per key alone "
        "belongs in Padding.",
    ),
    (
        given(mask=Dense(flags(1, 2, 5, 7))),
        MaskError,
        "Dense holds 2 heads and q has 4; give it one matrix per query head, or 1 for all.",
    ),
    (
        given(mask=Documents(lengths=[3, 3])),
        MaskError,
        "Documents holds 6 positions and k has 7; lengths must add up to k, and ids name every key.",
    ),
]

CASES = TENSORS + MASKS


@pytest.mark.parametrize(("call", "error", "message"), CASES, ids=[message[:50] for *_, message in CASES])
def test_bad_input_is_refused_in_words(call, error, message):
    refused(call, error, message)


@pytest.mark.parametrize("sides", [(0,), (-3,), (2, 0), (2, -1)])
def test_windows_below_one_are_refused(sides):
    name, value = ("left", sides[0]) if len(sides) == 1 else ("right", sides[1])
    message = f"Window got {name}={value}; it must be at least 1."
    with pytest.raises(MaskError, match=f"^{re.escape(message)}"):
        Window(*sides)


def test_explaining_a_bad_call_raises_the_same():
    with pytest.raises(ShapeError, match="q has batch 3, k has 2 and v has 2"):
        explain_dispatch(**given(q=torch.randn(3, 4, 5, 8)))
