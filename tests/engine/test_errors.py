"""What a user can get wrong, and the words that help."""

from __future__ import annotations

import math
import re

import pytest
import torch

from regard import attention, explain_dispatch
from regard.errors import (
    BackendError,
    DeviceError,
    DtypeError,
    MaskError,
    RegardError,
    ScoreError,
    ShapeError,
)
from regard.masks import Causal, Dense, Documents, Padding, Window
from regard.scores import Additive, ALiBi, General, RelativeBias, Score


def given(**changes):
    """A call that works, but for the changes."""
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    return {"q": q, "k": k, "v": v, **changes}


def flags(*shape):
    return torch.ones(shape, dtype=torch.bool)


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
        "mask is a torch.bool tensor of shape (5, 7); wrap it: Dense(mask), or Padding(mask) for one flag per "
        "key (True = may attend).",
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
        "Dense holds 7 queries and q has 5; give it one row per query; a flag per key alone belongs in Padding.",
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

LEARNED = torch.ones((), requires_grad=True)
OPTIONS = [
    (
        given(scale=math.inf),
        ScoreError,
        "scale is inf; it must be a finite number, or None for 1/sqrt(dim).",
    ),
    (
        given(scale=math.nan),
        ScoreError,
        "scale is nan; it must be a finite number, or None for 1/sqrt(dim).",
    ),
    (given(scale="half"), ScoreError, "scale is 'half'; it must be a number."),
    (
        given(scale=LEARNED),
        ScoreError,
        "scale requires grad, and no gradient flows into it; multiply q by it instead.",
    ),
    (
        given(softcap=0.0),
        ScoreError,
        "softcap is 0.0; it must be positive and finite, or None for no cap.",
    ),
    (
        given(softcap=-30),
        ScoreError,
        "softcap is -30; it must be positive and finite, or None for no cap.",
    ),
    (
        given(softcap=LEARNED),
        ScoreError,
        "softcap requires grad, and no gradient flows into it; detach it.",
    ),
    (given(dropout=1.0), ShapeError, "dropout is 1.0; it must be at least 0 and below 1."),
    (given(dropout=-0.1), ShapeError, "dropout is -0.1; it must be at least 0 and below 1."),
    (given(dropout="some"), ScoreError, "dropout is 'some'; it must be a number."),
    (
        given(sink=torch.zeros(2)),
        ShapeError,
        "sink is (2,); it must be one logit per query head, shape (4,).",
    ),
    (given(sink=0.0), ShapeError, "sink is float; it must be one logit per query head, shape (4,)."),
    (
        given(sink=torch.zeros(4, device="meta")),
        DeviceError,
        "sink is on meta and q on cpu. Move it with .to(q.device).",
    ),
    (
        given(bias=flags(5, 7)),
        ScoreError,
        "bias is a bool tensor; a bool mask belongs in mask=Dense(...), True = may attend.",
    ),
    (
        given(bias=torch.zeros(5, 7, dtype=torch.int64)),
        ScoreError,
        "bias is torch.int64; it must be a float tensor.",
    ),
    (
        given(bias=torch.zeros(5, 7, device="meta")),
        DeviceError,
        "bias is on meta and q on cpu. Move it with .to(q.device).",
    ),
    (
        given(bias=torch.zeros(7, 5)),
        ShapeError,
        "bias has shape (7, 5); it must broadcast to (batch, heads, q, k) = (2, 4, 5, 7).",
    ),
    (
        given(bias=torch.zeros(1, 2, 4, 5, 7)),
        ShapeError,
        "bias has shape (1, 2, 4, 5, 7); it must broadcast to (batch, heads, q, k) = (2, 4, 5, 7).",
    ),
    (
        given(bias=0.5),
        ScoreError,
        "bias is a float; it must be a tensor, ALiBi or RelativeBias.",
    ),
    (
        given(bias=ALiBi.for_heads(2)),
        ShapeError,
        "ALiBi has 2 slopes and q has 4 heads; give one slope per query head, or use ALiBi.for_heads(4).",
    ),
    (
        given(bias=RelativeBias(torch.zeros(32, 4))),
        ShapeError,
        "table of RelativeBias is (32, 4) and q has 4 heads; wanted (4, buckets). "
        "Transpose a table kept as (buckets, heads).",
    ),
    (
        given(score="dot"),
        ScoreError,
        "score is a str; it must be a score function such as DotProduct().",
    ),
    (
        given(score=General(torch.zeros(8, 6))),
        ShapeError,
        "weight of General is (8, 6), q has dim 8 and k has dim 8; its last two sizes must be "
        "(dim_q, dim_k) = (8, 8).",
    ),
    (
        given(score=Additive(torch.zeros(8, 3), torch.zeros(6, 3), torch.zeros(3))),
        ShapeError,
        "k has dim 8 and w_k of Additive is (6, 3); w_k must be (dim, hidden) with dim = 8.",
    ),
    (given(score_mod=3), ScoreError, "score_mod is a int; it must be a function."),
    (
        given(score_mod=lambda s, b, h, i, j: s + LEARNED),
        ScoreError,
        "score_mod captures LEARNED, which requires grad; gradients do not flow into captured tensors. "
        "Pass it as bias=, or detach it.",
    ),
    (
        given(score_mod=lambda s, b, h, i, j: None),
        ScoreError,
        "score_mod returned NoneType for a tile of shape (2, 4, 5, 7); it must return one score per pair. "
        "Index tensors come as (b,1,1,1), (1,h,1,1), (1,1,q,1) and (1,1,1,k).",
    ),
    (
        given(score_mod=lambda s, b, h, i, j: i - j),
        ScoreError,
        "score_mod returned (1, 1, 5, 7) for a tile of shape (2, 4, 5, 7); it must return one score per pair. "
        "Index tensors come as (b,1,1,1), (1,h,1,1), (1,1,q,1) and (1,1,1,k).",
    ),
    (
        given(backend="cuda"),
        BackendError,
        "backend='cuda' is unknown; regard has 'auto', 'sdpa', 'torch'.",
    ),
]
CASES = TENSORS + MASKS + OPTIONS


@pytest.mark.parametrize(
    ("call", "error", "message"), CASES, ids=[f"{n}-{m[:40]}" for n, (_, _, m) in enumerate(CASES)]
)
def test_bad_input_is_refused_in_words(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$") as caught:
        attention(**call)
    assert isinstance(caught.value, RegardError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("sides", [(0,), (-3,), (2, 0), (2, -1)])
def test_windows_below_one_are_refused(sides):
    name, value = ("left", sides[0]) if len(sides) == 1 else ("right", sides[1])
    message = f"Window got {name}={value}; it must be at least 1."
    with pytest.raises(MaskError, match=f"^{re.escape(message)}"):
        Window(*sides)


def test_what_is_captured_is_found_wherever_it_is_kept():
    nearby = torch.ones((), requires_grad=True)
    with pytest.raises(ScoreError, match="score_mod captures nearby"):
        attention(**given(score_mod=lambda s, b, h, i, j: s * nearby))
    layer = torch.nn.Linear(1, 1)
    with pytest.raises(ScoreError, match="score_mod captures layer"):
        attention(**given(score_mod=lambda s, b, h, i, j: s + layer.bias))

    class Module(torch.nn.Linear):
        def forward(self, s, b, h, i, j):
            return s + self.bias

    with pytest.raises(ScoreError, match="score_mod captures self"):
        attention(**given(score_mod=Module(1, 1)))


def test_what_learns_may_be_captured_where_nothing_learns():
    with torch.no_grad():
        attention(**given(score_mod=lambda s, b, h, i, j: s + LEARNED))
        attention(**given(scale=LEARNED))


def test_an_error_inside_a_score_mod_is_the_users_own():
    def broken(s, b, h, i, j):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        attention(**given(score_mod=broken))


def test_a_score_of_your_own_that_returns_the_wrong_shape_is_named():
    class Summed(Score):
        def tile(self, q, k, *parameters):
            return (q @ k.mT).sum(-1)

    message = "Summed.tile returned (4, 10) for 10 queries and 7 keys; it must return (4, 10, 7)."
    with pytest.raises(ScoreError, match=f"^{re.escape(message)}$"):
        attention(**given(score=Summed()))


def test_explaining_a_bad_call_raises_the_same():
    with pytest.raises(ShapeError, match="q has batch 3, k has 2 and v has 2"):
        explain_dispatch(**given(q=torch.randn(3, 4, 5, 8)))
