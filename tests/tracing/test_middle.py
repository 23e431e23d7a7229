"""Traces that start with scores or with weights."""

from __future__ import annotations

import re

import pytest
import torch

from regard import Causal
from regard.errors import RegardError, ShapeError
from regard.tracing import trace


def test_a_row_of_scores_becomes_weights():
    steps = trace(scores=[2.3, 0.26, -0.20, 0.10])
    assert steps.names == ["scores", "weights"]
    torch.testing.assert_close(steps.weights, torch.tensor([[2.3, 0.26, -0.20, 0.10]]).double().softmax(-1))
    assert "e^2.3 / (e^2.3 + e^0.26 + e^(−0.2) + e^0.1) ≈ 9.974 / 13.2 ≈ 0.756" in str(steps)


def test_scores_may_be_scaled_masked_capped_and_mixed():
    scores, v = torch.randn(5, 5).double(), torch.randn(5, 3).double()
    steps = trace(scores=scores, v=v, scale=0.5, mask=Causal(), softcap=3.0)
    assert steps.names == ["scores", "scaled", "capped", "masked", "weights", "v", "output"]
    logits = 3 * (scores * 0.5 / 3).tanh()
    hidden = logits.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(steps.output, hidden.softmax(-1) @ v)
    assert trace(scores=[[100, 50, 40]], scale=1 / 20).scaled.tolist() == [[5.0, 2.5, 2.0]]


def test_weights_mix_values_as_a_convex_combination():
    steps = trace(weights=[0.1, 0.6, 0.2, 0.1], v=[[1, 0], [0, 1], [1, 1], [2, 0]])
    assert steps.names == ["weights", "v", "output"]
    assert steps.output.tolist() == [[pytest.approx(0.5), pytest.approx(0.8)]]
    assert "a convex combination." in steps["output"].sentence
    assert "→ q0, first number: 0.1×1 + 0.6×0 + 0.2×1 + 0.1×2 ≈ 0.5" in str(steps)


def test_values_may_be_one_number_each():
    assert trace(weights=[[0.25, 0.75]], v=[4, 8]).output.tolist() == [[7.0]]
    assert trace(scores=[0, 0], v=[4, 8]).output.tolist() == [[6.0]]


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"weights": [0.5, 0.2], "v": [1, 2]}, RegardError,
         "row 0 of weights adds up to 0.7; weights are shares of 1. Divide by their sum, or start from the "
         "scores: trace(scores=...)."),
        ({"weights": [-0.5, 1.5], "v": [1, 2]}, RegardError,
         "row 0 of weights holds -0.5; weights are not negative."),
        ({"weights": [0.5, 0.5]}, RegardError,
         "trace got weights and no v; give v, the values that they mix."),
        ({"scores": [1, 2], "weights": [0.5, 0.5]}, RegardError,
         "trace got weights and scores; a trace that starts"),
        ({"scores": [1, 2], "q": [[1]]}, RegardError,
         "trace got scores and q; a trace that starts with scores needs"),
        ({"scores": [[[1]]]}, ShapeError,
         "scores has shape (1, 1, 1); it must be (queries, keys), or one row."),
        ({"scores": [1, 2], "v": [1, 2, 3]}, ShapeError, "k has length 2 and v has length 3"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(given, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        trace(**given)


def test_vectors_meet_themselves_without_projections():
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]], dtype=torch.float64)
    scores = trace(x, x, x, scale=1.0).scores
    torch.testing.assert_close(scores, x @ x.T)
    # Alike, between, opposite; and of unit vectors the product is the cosine.
    torch.testing.assert_close(scores[0], torch.tensor([1.0, 0.6, -1.0], dtype=torch.float64))
    torch.testing.assert_close(scores, torch.cosine_similarity(x[:, None], x[None], dim=-1))
    near = trace(scores=-torch.cdist(x, x), v=x).weights
    assert near.argmax(-1).tolist() == [0, 1, 2]
