"""`trace` computes what `attention` does, and records the steps that happen."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import Causal, Dense, Padding, Window, attention
from regard.scores import Additive, ALiBi, General
from regard.tracing import example, trace
from strategies import lengths, masks


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
