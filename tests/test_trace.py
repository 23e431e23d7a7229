"""`trace` and `Trace`: every step, against textbooks, against `attention`, and as people see it."""

from __future__ import annotations

import copy
import html
import io
import json
import math
import pickle
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.style import Style

from regard import Causal, Dense, Padding, Window, attention
from regard.errors import DtypeError, MapError, MaskError, RegardError, ScoreError, ShapeError
from regard.plots import shade
from regard.scores import Additive, ALiBi, General
from regard.tracing import EXAMPLES, example, trace
from strategies import lengths, masks

# What textbooks print, as they print it: the digits say how exact a number claims to be.

CAT = {
    "q": "0.49 0.13 | 0.41 0.16 | 0.04 0.38 | 0.19 0.60",
    "k": "0.21 0.17 | 0.39 0.65 | -0.06 0.58 | -0.07 0.27",
    "v": "0.61 0.67 | -0.16 0.64 | 0.04 0.14 | 0.98 0.28",
    "scores": "0.125 0.276 0.046 0.001 | 0.113 0.264 0.068 0.014 | 0.073 0.263 0.218 0.100 "
    "| 0.142 0.464 0.337 0.149",
    "scaled": "0.088 0.195 0.033 0.001 | 0.080 0.187 0.048 0.010 | 0.052 0.186 0.154 0.071 "
    "| 0.100 0.328 0.238 0.105",
    "weights": "1.0 0 0 0 | 0.473 0.527 0 0 | 0.308 0.352 0.341 0 | 0.227 0.285 0.260 0.228",
    "output": "0.610 0.670 | 0.205 0.654 | 0.145 0.479 | 0.327 0.435",
}
THREE = {
    "scores": "1 0 1",
    "scaled": "0.707 0 0.707",
    "weights": "0.401 0.198 0.401",
    "output": "6.015 3.985",
}

# A row of scores, what is printed for its softmax, and for each wrong cell what it should have been.
SOFTMAX_ROWS = [
    ([2.1, 0.5, -1.0, 0.8], "0.65 0.13 0.03 0.19", {0: "0.66", 3: "0.18"}),
    ([18, 2, -2, 1], "1.0 1.1e-7 1.5e-9 4.2e-8", {2: "2.1e-9", 3: "4.1e-8"}),
    ([2.3, 0.26, -0.20, 0.10], "0.76 0.10 0.06 0.08", {}),
    ([3.5, -2.1, 8.7, 0.3], "0.05 0.00 0.94 0.01", {0: "0.01", 2: "0.99", 3: "0.00"}),
    ([100, 50, 40], "1.0 0.0 0.0", {}),
    ([5.0, 2.5, 2.0], "0.85 0.10 0.06", {0: "0.88", 1: "0.07", 2: "0.04"}),
]


def half_unit(printed: str) -> float:
    """Half of one in the last digit of a printed number; a bare 0 or 1 is exact."""
    mantissa, _, exponent = printed.partition("e")
    _, point, decimals = mantissa.partition(".")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(decimals)) if point else 0.0


def wrong_cells(value: torch.Tensor, printed: str) -> list[int]:
    """Which printed numbers of a row, or of rows one after another, are not the computed ones rounded."""
    numbers = printed.replace("|", " ").split()
    pairs = zip(value.flatten().tolist(), numbers, strict=True)
    return [i for i, (x, text) in enumerate(pairs) if abs(x - float(text)) > half_unit(text) + 1e-12]


def softmax_step(scores: list[float], **options):
    """A trace whose raw scores are the given ones: one query of 1, and the scores as keys."""
    return trace([[1.0]], [[s] for s in scores], [[0.0]] * len(scores), scale=1.0, **options)


@pytest.mark.parametrize("step", CAT)
def test_every_printed_number_of_the_cat_sat_down_comes_out(step):
    assert wrong_cells(example("cat")[step].value, CAT[step]) == []


@pytest.mark.parametrize("step", ["scores", "scaled", "weights"])
def test_every_printed_step_before_the_output_of_one_query_and_three_keys_comes_out(step):
    assert wrong_cells(example("three")[step].value, THREE[step]) == []


def test_the_printed_output_of_three_keys_was_computed_from_rounded_weights():
    steps = example("three")
    assert wrong_cells(steps.output, THREE["output"]) == [0, 1]
    assert wrong_cells(steps.output, "6.017 3.983") == []
    rounded = torch.tensor([[0.401, 0.198, 0.401]], dtype=torch.float64)
    assert wrong_cells(rounded @ steps.v, THREE["output"]) == []


@pytest.mark.parametrize(("scores", "printed", "right"), SOFTMAX_ROWS, ids=lambda x: str(x)[:20])
def test_a_printed_softmax_is_right_except_in_the_cells_named_here(scores, printed, right):
    weights = softmax_step(scores).weights
    assert wrong_cells(weights, printed) == list(right)
    corrected = [right.get(i, text) for i, text in enumerate(printed.split())]
    assert wrong_cells(weights, " ".join(corrected)) == []


def test_three_of_four_scores_divided_by_eight_are_misprinted():
    k = torch.zeros(4, 64, dtype=torch.float64)
    k[:, 0] = torch.tensor([18, 2, -2, 1])
    steps = trace(torch.eye(1, 64), k, torch.ones(4, 1))
    assert steps["scaled"].formula == "scaled = scores / √64"
    assert wrong_cells(steps.scaled, "2.3 0.26 -0.20 0.10") == [1, 2, 3]
    assert wrong_cells(steps.scaled, "2.3 0.25 -0.25 0.125") == []


def test_no_weight_shown_for_sat_on_the_mat_is_the_softmax_of_its_scores():
    tokens = ["The", "cat", "sat", "on", "the", "mat"]
    scores = [0.5, 2.8, 1.2, 0.3, 0.4, 2.5]
    row = softmax_step(scores, tokens=["sat"], key_tokens=tokens).weights[0]
    weight = dict(zip(tokens, row, strict=True))
    both = weight["The"] + weight["the"]
    shown = torch.stack([weight["cat"], weight["mat"], weight["sat"], both, weight["on"]])
    assert wrong_cells(shown, "0.35 0.28 0.12 0.12 0.13") == [0, 1, 2, 3, 4]
    assert wrong_cells(shown, "0.45 0.33 0.09 0.09 0.04") == []


def test_the_printed_similarities_of_request_come_out():
    others = {"agent": [0.2, 0.8, 0.3], "opened": [0.3, 0.7, 0.4], "pull": [0.1, 0.9, 0.2]}
    steps = trace([[0.8, 0.2, 0.7]], list(others.values()), [[0]] * 3, key_tokens=others)
    assert wrong_cells(steps.scores, "0.53 0.66 0.40") == []


# Equal to attention


@st.composite
def calls(draw):
    """Sizes, a mask that fits them, and any of the options."""
    q, k = draw(lengths(33)), draw(lengths(65))
    batch, kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads = kv_heads * group
    mask = draw(st.none() | masks(q, k, batch, heads, leaves=2))
    options = {"scale": draw(st.sampled_from([None, 1.0, 0.3]))}
    options["bias"] = draw(st.sampled_from([None, ALiBi.for_heads(heads), torch.randn(heads, q, k)]))
    options["softcap"] = draw(st.sampled_from([None, 2.0]))
    options["sink"] = draw(st.sampled_from([None, torch.randn(heads)]))
    options["score_mod"] = draw(
        st.sampled_from([None, lambda s, b, h, i, j: s - 0.1 * (i - j).abs() + b - h])
    )
    return (batch, heads, kv_heads, q, k), mask, options


@given(calls())
def test_the_output_of_a_trace_is_the_output_of_attention(call):
    (batch, heads, kv_heads, q_len, k_len), mask, options = call
    q = torch.randn(batch, heads, q_len, 5, dtype=torch.float64)
    k, v = torch.randn(2, batch, kv_heads, k_len, 5, dtype=torch.float64)
    want = attention(q, k, v, mask, **options)
    torch.testing.assert_close(trace(q, k, v, mask, **options).output, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("score", ["additive", "general"])
def test_other_score_functions_are_traced_too(score):
    q, k, v = torch.randn(3, 63, 4)
    made = {
        "additive": Additive(*torch.randn(2, 4, 3), torch.randn(3)),
        "general": General(torch.randn(4, 4)),
    }
    steps = trace(q, k, v, Causal(), score=made[score])
    torch.testing.assert_close(steps.output, attention(q, k, v, Causal(), score=made[score]))
    assert "scaled" not in steps
    assert type(made[score]).__name__ in steps["scores"].sentence


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((5, 4), ("query", "key")),
        ((2, 5, 4), ("batch", "query", "key")),
        ((2, 3, 5, 4), ("batch", "heads", "query", "key")),
        ((1, 1, 5, 4), ("batch", "heads", "query", "key")),
    ],
)
def test_steps_keep_the_rank_of_the_input(shape, axes):
    q = torch.randn(shape)
    steps = trace(q, q, q)
    assert steps["weights"].axes == axes
    assert steps.weights.shape == (*shape[:-1], 5)
    torch.testing.assert_close(steps.output, attention(q, q, q))


def test_vectors_have_a_heads_axis_only_if_there_are_several_heads():
    x, w = torch.randn(2, 3, 4), torch.randn(4, 4)
    assert trace(x=x[0], w_q=w, w_k=w, w_v=w).weights.shape == (3, 3)
    assert trace(x=x[0], w_q=w, w_k=w, w_v=w, heads=2).weights.shape == (2, 3, 3)
    assert trace(x=x, w_q=w, w_k=w, w_v=w, heads=2).weights.shape == (2, 2, 3, 3)


def test_projections_give_what_separate_matrix_products_give():
    x, w_q, w_o = torch.randn(7, 6), torch.randn(6, 8), torch.randn(12, 5)
    w_k, w_v = torch.randn(6, 4), torch.randn(6, 6)
    steps = trace(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, heads=4, kv_heads=2, mask=Causal())
    q = (x @ w_q).view(1, 7, 4, 2).transpose(1, 2)
    k, v = ((x @ w).view(1, 7, 2, -1).transpose(1, 2) for w in (w_k, w_v))
    out = attention(q, k, v, Causal())[0]
    torch.testing.assert_close(steps.output, out)
    joined = torch.cat(list(out), dim=-1)
    torch.testing.assert_close(steps.heads_concatenated, joined)
    torch.testing.assert_close(steps.projected, joined @ w_o)


def test_a_context_gives_the_keys_and_values():
    x, context = torch.randn(2, 3, 4), torch.randn(2, 65, 6)
    w_q, w_k, w_v = torch.randn(4, 2), torch.randn(6, 2), torch.randn(6, 3)
    steps = trace(x=x, context=context, w_q=w_q, w_k=w_k, w_v=w_v)
    torch.testing.assert_close(steps.output, attention(x @ w_q, context @ w_k, context @ w_v))
    assert steps.names[:2] == ["input", "context"]
    assert steps["k"].formula == "k = context W_k"


def test_a_query_without_keys_gets_zero_weights_and_zero_output():
    q = torch.randn(3, 4)
    steps = trace(q, q, q, Dense(torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]]).bool()))
    assert steps.weights[1].tolist() == steps.output[1, :3].tolist() == [0.0, 0.0, 0.0]
    assert "1 row has nothing to attend to and stays 0." in steps["weights"].sentence
    assert "nan" not in str(trace(q, q, q, ~Causal(shift=5)))


def test_garbage_behind_the_mask_does_not_leak():
    q, k, v = torch.randn(3, 63, 4)
    mask = Padding(torch.arange(63) < 61)
    clean = trace(q, k, v, mask).output
    k[61:], v[61:] = math.nan, math.inf
    torch.testing.assert_close(trace(q, k, v, mask).output, clean)


# Which steps there are


def test_only_the_steps_that_happen_are_there():
    q = torch.ones(2, 4)
    assert trace(q, q, q).names == ["q", "k", "v", "scores", "scaled", "weights", "output"]
    assert trace(q, q, q, scale=1.0).names == ["q", "k", "v", "scores", "weights", "output"]


def test_all_steps_come_in_the_order_they_are_computed_in():
    x, w = torch.ones(3, 4), torch.ones(4, 4)
    steps = trace(
        x=x, w_q=w, w_k=w, w_v=w, w_o=w, heads=2, mask=Causal(), bias=torch.ones(3, 3), softcap=5.0,
        sink=[0.0, 1.0], score_mod=lambda s, b, h, q, k: s + 1,
    )  # fmt: skip
    assert steps.names == [
        "input", "q", "k", "v", "scores", "scaled", "biased", "capped", "modified", "masked", "weights",
        "sink", "output", "heads concatenated", "projected",
    ]  # fmt: skip
    assert [step.formula for step in steps][5:12] == [
        "scaled = scores / √2",
        "biased = scaled + bias",
        "capped = 5 · tanh(biased / 5)",
        "modified = score_mod(capped)",
        "masked = modified, −∞ where hidden",
        "weights = softmax(masked, sink)",
        "sink = 1 − Σ weights",
    ]


def test_weights_and_the_share_of_the_sink_add_up_to_one():
    q = torch.randn(1, 3, 63, 8)
    steps = trace(q, q, q, Causal(), sink=[0.0, 5.0, -5.0])
    torch.testing.assert_close(steps.weights.sum(-1) + steps.sink, torch.ones(1, 3, 63))
    assert steps["sink"].axes == ("batch", "heads", "query")


def test_a_mask_that_hides_nothing_is_still_a_step():
    q, k = torch.ones(1, 2), torch.ones(3, 2)
    step = trace(q, k, k, Causal())["masked"]
    assert step.sentence == "Causal() lets every query see every key here, so nothing changes."


def test_sentences_name_the_numbers():
    q = torch.tensor([[4.0, 0.0, 0.0], [0.0, 8.0, 0.0]])
    steps = trace(q, q, q, Causal() & Window(1), bias=[[0.5, -1.5], [0, 0]], softcap=10)
    said = {step.name: step.sentence for step in steps}
    assert said["q"] == "Given: one query per row, 3 numbers: what the token is looking for."
    assert "2 queries × 2 keys = 4 scores, each the sum of 3 products" in said["scores"]
    assert said["scaled"].startswith("Divide by √3 = 1.732, so that")
    assert said["biased"].startswith("Add the bias, from −1.5 to 0.5:")
    assert said["capped"].endswith("the largest goes from 36.95 to 9.988.")
    assert said["masked"].startswith("Causal() & Window(left=1) hides 2 of 4 pairs:")
    made = example("cat")
    assert made["q"].sentence.startswith("Each vector times W_q (4 × 2) gives a query, 2 numbers:")


def test_grouped_heads_are_said_to_share():
    q, k = torch.ones(1, 6, 2, 4), torch.ones(1, 2, 2, 4)
    assert trace(q, k, k)["k"].sentence.endswith("Every 3 query heads share one.")


# What goes in


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


# Reading a trace


def test_an_array_is_an_attribute_and_a_step_an_item():
    steps = example("cat")
    assert steps.weights is steps["weights"].value
    assert [step.name for step in steps] == steps.names
    assert len(steps) == 9
    assert "weights" in dir(steps)
    assert "weights" in steps
    assert "capped" not in steps


def test_a_step_that_did_not_happen_is_named_among_those_that_did():
    steps = example("three")
    text = "this trace has no step 'capped'; it has q, k, v, scores, scaled, weights, output."
    with pytest.raises(MapError, match=re.escape(text)):
        steps["capped"]
    with pytest.raises(AttributeError, match=re.escape(text)):
        steps.capped  # noqa: B018
    assert not hasattr(steps, "capped")


def test_a_trace_can_be_copied_and_pickled():
    steps = example("cat")
    for twin in (copy.deepcopy(steps), pickle.loads(pickle.dumps(steps))):
        assert str(twin) == str(steps)


def test_the_dict_is_strict_json_and_holds_every_number():
    steps = example("cat")
    data = json.loads(json.dumps(steps.to_dict(), allow_nan=False))
    assert data["tokens"] == data["key_tokens"] == ["The", "cat", "sat", "down"]
    assert [step["name"] for step in data["steps"]] == steps.names
    by_name = {step["name"]: step for step in data["steps"]}
    assert by_name["weights"]["value"] == steps.weights.tolist()
    assert by_name["masked"]["value"][0][1:] == ["-inf"] * 3
    assert by_name["masked"]["axes"] == ["query", "key"]
    assert set(by_name["q"]) == {"name", "formula", "sentence", "axes", "value"}


def test_numbers_that_are_none_are_written_as_strings():
    q = torch.tensor([[math.inf], [math.nan]])
    assert trace(q, q, q).to_dict()["steps"][0]["value"] == [["inf"], ["nan"]]


def test_repr_says_how_large_and_which_steps():
    q = torch.ones(2, 3, 1, 4)
    assert repr(trace(q, q, q)) == (
        "Trace(1 query × 1 key, 3 heads, 2 batch rows: q, k, v, scores, scaled, weights, output)"
    )


# Rendering


def test_the_text_of_one_query_walks_through_its_arithmetic():
    text = example("cat").to_text(query="sat")
    assert "Attention, step by step: 4 queries × 4 keys, query sat\n" in text
    for line in [
        "→ sat, first number: (−0.5)×0.1 + 0.3×0.4 + 1.1×(−0.1) + 0.4×0.2 ≈ 0.04",
        "→ sat · cat: 0.04×0.39 + 0.38×0.65 ≈ 0.263",
        "→ sat · cat: 0.263 / 1.414 ≈ 0.186",
        "   sat  0.052  0.186  0.154    −∞\n   → sat may look at The, cat, sat",
        "   sat  0.308  0.352  0.341     ·\n",
        "→ sat · cat: e^0.186 / (e^0.052 + e^0.186 + e^0.154) ≈ 1.204 / 3.424 ≈ 0.352",
        "→ sat, first number: 0.308×0.61 + 0.352×(−0.16) + 0.341×0.04 ≈ 0.145",
    ]:
        assert line in text


def test_every_option_is_worked_out_for_its_own_head():
    x, w = [[1.0, 2.0], [3.0, -1.0]], torch.eye(2)
    steps = trace(
        x=x, w_q=w, w_k=w, w_v=w, w_o=2 * w, heads=2, scale=0.5, bias=[[0, 1], [0, 1]], softcap=4,
        sink=[-1, 1], score_mod=lambda s, b, h, q, k: s + 10 * h,
    )  # fmt: skip
    text = steps.to_text(query=0, head=1)
    assert "head 1 of 2, query q0" in text
    for line in [
        "→ q0, first number: 1×0 + 2×1 = 2",
        "→ q0 · k0: 2×2 = 4",
        "→ q0 · k0: 4 × 0.5 ≈ 2",
        "→ q0 · k0: 2 + 0 ≈ 2",
        "→ q0 · k0: 4 × tanh(2 / 4) ≈ 1.848",
        "→ q0 · k0: 1.848 becomes 11.848",
        "→ q0 · k0: e^11.848 / (e^11.848 + e^10 + e^1) ≈ ",
        "→ q0, first number: 0.864×2 + 0.136×(−1) ≈ 1.592",
    ]:
        assert line in text
    assert "share" in text


def test_a_query_head_is_shown_with_the_key_head_it_shares():
    x, w_q, w_kv = [[1.0, 1.0]], torch.ones(2, 4), [[1.0, 5.0], [1.0, 2.0]]
    text = trace(x=x, w_q=w_q, w_k=w_kv, w_v=w_kv, heads=4, kv_heads=2).to_text(head=3)
    assert "→ k0, first number: 1×5 + 1×2 = 7" in text
    assert "→ q0 · k0: 2×7 = 14" in text
    assert "→ q0, first number: 1×7 = 7" in text


def test_large_scores_are_shifted_before_they_are_worked_out():
    text = softmax_step([100.0, 98.0]).to_text()
    assert "→ q0 · k0 after subtracting 100: e^0 / (e^0 + e^(−2)) ≈ 1 / 1.135 ≈ 0.881" in text


@settings(max_examples=20)
@given(lengths(33), lengths(65), st.integers(1, 3), st.data())
def test_every_rendering_of_every_shape_works(q_len, k_len, heads, data):
    mask = data.draw(masks(q_len, k_len, 1, heads, leaves=2))
    q, k = torch.randn(1, heads, q_len, 3), torch.randn(1, heads, k_len, 3)
    steps = trace(q, k, k, mask, sink=torch.zeros(heads))
    where = {"query": q_len - 1, "head": heads - 1}
    assert steps.to_text(**where).count("\n\n") == len(steps)
    assert steps.to_html(**where).count("<section>") == len(steps)
    assert max(map(len, str(steps).splitlines())) <= 130


def test_a_long_table_leaves_out_its_middle():
    q = torch.ones(63, 2)
    table = trace(q, q, q).to_text().split("scores = q kᵀ")[1].split("\n\n")[0]
    assert "k5  …  k58" in re.sub(" +", " ", table).replace(" … ", "  …  ")
    assert "q30" not in table


def test_the_page_is_well_formed_and_fetches_nothing():
    class Checker(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.links, self.cells = [], [], 0

        def handle_starttag(self, tag, attributes):
            self.links += [value for name, value in attributes if name in ("src", "href")]
            self.cells += tag == "td"
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    page, checker = example("cat").to_html(), Checker()
    checker.feed(page)
    assert checker.open == checker.links == []
    assert checker.cells == sum(step.value.numel() for step in example("cat"))
    assert "<script" not in page
    assert "url(" not in page
    assert "prefers-color-scheme:dark" in page


def test_the_page_says_what_the_steps_say():
    page = html.unescape(example("cat").to_html())
    for step in example("cat"):
        assert step.formula in page
        assert step.sentence in page
    assert page.count("<td>−∞</td>") == page.count("<td>·</td>") == 6
    assert ">0.527</td>" in page
    assert "down · cat: 0.464 / 1.414 ≈ 0.328" in page


def test_tokens_are_escaped_in_the_page_and_are_no_markup_in_the_terminal():
    steps = trace([[1.0]], [[1.0]], [[1.0]], tokens=["<b>&"], key_tokens=["[red]x"])
    assert "&lt;b&gt;&amp;" in steps.to_html()
    assert "<b>" not in steps.to_html()
    assert "[red]x" in on_a_terminal(steps)


@pytest.mark.parametrize(
    ("token", "shown"),
    [("a\nb", "a␊b"), ("", "␣"), ("  ", "␣␣"), ("x" * 40, "x" * 15 + "…"), ("\u200b", "�")],
)
def test_a_token_is_printed_on_one_line_and_never_invisible(token, shown):
    text = trace([[1.0]], [[1.0]], [[1.0]], tokens=[token]).to_text()
    assert f"\n   {shown}  1\n" in text


def test_wide_letters_keep_columns_straight():
    lines = trace([[1.0], [1.0]], [[1.0]], [[1.0]], tokens=["猫", "ab"]).to_text().splitlines()
    assert "   猫  1" in lines
    assert "   ab  1" in lines


def on_a_terminal(steps) -> str:
    # Rich keeps a style's escape codes for the colours of the terminal it was first shown on.
    Style.parse.cache_clear()
    Style._add.cache_clear()
    console = Console(
        file=io.StringIO(), width=100, force_terminal=True, color_system="truecolor", no_color=False
    )
    console.print(steps)
    return console.file.getvalue()


def test_a_terminal_gets_shaded_cells():
    shown = on_a_terminal(example("cat"))
    red, green, blue = (int(shade(1.0, dark=True)[i : i + 2], 16) for i in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}m 1.000 " in shown
    assert "weights = softmax(masked)" in shown


def test_show_prints_the_chosen_query(capsys):
    example("cat").show(query="cat")
    shown = capsys.readouterr().out
    assert "query cat" in shown
    assert "cat · cat" in shown


def test_a_notebook_gets_the_page_without_its_frame():
    fragment = example("cat")._repr_html_()
    assert fragment.startswith('<div class="regard">')
    assert "<html" not in fragment


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({"query": "dog"}, "no query is called 'dog'; there are 'The', 'cat', 'sat', 'down'."),
        ({"query": 4}, "query 4 is out of range; there are 4, counted from 0."),
        ({"head": 1}, "the trace has no head 1; there is only one, 0."),
        ({"batch": -1}, "the trace has no batch row -1; there is only one, 0."),
    ],
)
def test_what_is_not_there_cannot_be_shown(where, text):
    with pytest.raises(MapError, match=re.escape(text)):
        example("cat").to_text(**where)


def test_a_token_that_occurs_twice_must_be_named_by_its_number():
    q = torch.ones(3, 2)
    steps = trace(q, q, q, tokens=["the", "cat", "the"])
    with pytest.raises(MapError, match="query 'the' occurs 2 times, at 0, 2"):
        steps.to_html(query="the")
    assert "query the" in steps.to_text(query=-1)


# Drawing


def texts_of(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_plot_writes_every_weight_that_is_not_hidden():
    figure = example("cat").plot()
    assert texts_of(figure) == [
        "1.00",
        "0.47",
        "0.53",
        "0.31",
        "0.35",
        "0.34",
        "0.23",
        "0.28",
        "0.26",
        "0.23",
    ]
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["The", "cat", "sat", "down"]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("query", "key")
    assert axes.get_title() == "weights = softmax(masked)"


@pytest.mark.parametrize("step", ["input", "q", "v", "scores", "masked", "output"])
def test_every_step_can_be_plotted(step):
    assert example("cat").plot(step).axes[0].get_title() == example("cat")[step].formula


def test_a_plot_is_of_the_chosen_head():
    q = torch.ones(1, 2, 1, 1)
    v = torch.tensor([3.0, 5.0]).view(1, 2, 1, 1)
    steps = trace(q, q, v, sink=[0.0, 0.0])
    assert texts_of(steps.plot("v", head=1)) == ["5"]
    assert texts_of(steps.plot("sink", head=1)) == ["0.27"]


def test_a_plot_of_a_long_text_has_no_numbers_in_it():
    q = torch.ones(25, 2)
    assert texts_of(trace(q, q, q).plot()) == []


def test_a_plot_of_no_such_step_is_refused():
    with pytest.raises(MapError, match="this trace has no step 'heads'"):
        example("cat").plot("heads")


# The examples


def test_the_examples_are_called_by_name():
    assert list(EXAMPLES) == ["cat", "three"]
    with pytest.raises(RegardError, match="no example is called 'dog'; there are 'cat', 'three'"):
        example("dog")
