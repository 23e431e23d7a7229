"""What a user can get wrong about the options, and the words that help."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from engine.harness import flags, given, refused
from regard import attention
from regard.errors import BackendError, DeviceError, ScoreError, ShapeError
from regard.scores import Additive, ALiBi, Bias, General, RelativeBias, Score

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
        "score_mod returned NoneType for a tile of shape (2, 4, 5, 7); it must return one score per pair"
        ". Index tensors come as (b,1,1,1), (1,h,1,1), (1,1,q,1) and (1,1,1,k).",
    ),
    (
        given(score_mod=lambda s, b, h, i, j: i - j),
        ScoreError,
        "score_mod returned (1, 1, 5, 7) for a tile of shape (2, 4, 5, 7); it must return one score per pair"
        ". Index tensors come as (b,1,1,1), (1,h,1,1), (1,1,q,1) and (1,1,1,k).",
    ),
    (
        given(backend="cuda"),
        BackendError,
        "backend='cuda' is unknown; regard has 'auto', 'sdpa', 'torch', 'triton'.",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), OPTIONS, ids=[message[:50] for *_, message in OPTIONS])
def test_bad_options_are_refused_in_words(call, error, message):
    refused(call, error, message)


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


def times(weight, s, b, h, i, j):
    return s * weight


class Times:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, *given):
        return times(self.weight, *given)

    def method(self, *given):
        return times(self.weight, *given)


def as_default(weight):
    def mod(s, b, h, i, j, weight=weight):
        return s * weight

    return mod


READING = {
    "partial": lambda weight: partial(times, weight),
    "default": as_default,
    "object": Times,
    "method": lambda weight: Times(weight).method,
    "list": lambda weight: partial(lambda held, *given: times(held[0], *given), [weight]),
    "helper": lambda weight: lambda *given: READING["partial"](weight)(*given),
}


@pytest.mark.parametrize("make", READING.values(), ids=list(READING))
def test_what_a_score_mod_reads_by_any_way_is_noticed_if_it_learns(make):
    q = torch.randn(2, 4, 5, 8, requires_grad=True)
    with pytest.raises(ScoreError, match=r"requires grad; gradients do not flow into captured tensors"):
        attention(**given(q=q, score_mod=make(LEARNED)))
    assert attention(**given(q=q, score_mod=make(LEARNED.detach()))).requires_grad


def test_a_module_whose_weights_a_score_mod_does_not_read_may_be_captured():
    class Scaled(torch.nn.Linear):
        factor = 2.0

        def mod(self, s, b, h, i, j):
            return s * self.factor

    module = Scaled(1, 1)
    call = given()
    for mod in (module.mod, lambda s, b, h, i, j: s * module.factor):
        torch.testing.assert_close(attention(**call, score_mod=mod), attention(**call, scale=2 / 8**0.5))


def test_a_score_mod_may_name_what_has_no_value_yet():
    def mod(s, b, h, i, j):
        return s * (later if callable(s) else 2.0)

    call = given()
    torch.testing.assert_close(attention(**call, score_mod=mod), attention(**call, scale=2 / 8**0.5))
    later = 3.0


def test_a_bias_and_a_score_of_your_own_must_declare_what_learns():
    class Bonus(Bias):
        def tile(self, q_pos, k_pos):
            return LEARNED * (q_pos[:, None] == k_pos)

    class Weighed(Score):
        def tile(self, q, k, *parameters):
            return LEARNED * (q @ k.mT)

    for option in ({"bias": Bonus()}, {"score": Weighed()}):
        name = type(next(iter(option.values()))).__name__
        with pytest.raises(ScoreError) as caught:
            attention(**given(**option, score_mod=lambda s, b, h, i, j: s))
        assert str(caught.value) == (
            f"{name}.tile reads a tensor that requires grad and is not among its parameters(), so it would "
            "get no gradient. Return it from parameters(), or detach it."
        )


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
    refused(given(score=Summed()), ScoreError, message)
