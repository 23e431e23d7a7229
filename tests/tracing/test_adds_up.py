"""What is printed adds up: every equation of every text, recomputed by hand from its printed numbers."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from regard import Causal
from regard.checking.equations import equations_in, evaluated
from regard.errors import RegardError
from regard.models import bundled, record
from regard.models.head_trace import head_trace
from regard.tracing import example, trace
from regard.tracing.sums import dot

UNROUNDED = "from unrounded factors"


def equations(text: str) -> list:
    """The equations of a printed trace; a line that goes on in the next one is one line."""
    joined = re.sub(r"\n     (?=\S)", " ", text)
    lines = [line for line in joined.splitlines() if "→" in line and UNROUNDED not in line]
    return [found for line in lines for found in equations_in(line)]


def wrong(text: str) -> list[tuple[str, float, str]]:
    """Equations whose right side is off by more than half of its last digit."""
    found = []
    for one in equations(text):
        # Numbers of 10,000 and more are printed without decimals.
        half = 0.5 if abs(one.printed.value) >= 1e4 else 0.00050001
        if abs(one.value - one.printed.value) > (one.printed.half if "e" in one.printed.text else half):
            found.append((one.left, one.value, one.printed.text))
    return found


@pytest.mark.parametrize("name", ["cat", "three"])
def test_every_equation_of_an_example_adds_up(name):
    steps = example(name)
    for query in range(len(steps.tokens)):
        text = steps.to_text(query=query)
        assert len(equations(text)) >= 4
        assert UNROUNDED not in text
        assert wrong(text) == []


def test_the_output_of_three_keys_shows_digits_enough():
    text = example("three").to_text()
    assert "0.401×10" not in text
    assert "0.40111×10 + 0.19778×0 + 0.40111×5 ≈ 6.017" in text


@examples(40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 33), st.integers(0, 2**31), st.data())
def test_every_equation_of_any_trace_adds_up(q_len, k_len, dim, seed, data):
    made = torch.Generator().manual_seed(seed)
    size = data.draw(st.sampled_from([0.01, 1.0, 30.0]))
    q, k, v = (size * torch.randn(n, dim, generator=made, dtype=torch.float64) for n in (q_len, k_len, k_len))
    options = {
        "mask": data.draw(st.sampled_from([None, Causal()])),
        "softcap": data.draw(st.sampled_from([None, 5.0])),
        "scale": data.draw(st.sampled_from([None, 0.125, 0.0333])),
        "sink": data.draw(st.sampled_from([None, [0.5]])),
    }
    assert wrong(trace(q, k, v, **options).to_text()) == []


def test_every_equation_of_a_real_head_adds_up():
    text = "The cat sat on the mat"
    recording = record(bundled(), text)
    tokens = [token.text for token in recording.tokens]
    for layer, head in ((0, 0), (4, 1), (8, 5)):
        steps = head_trace(bundled(), text, recording, layer, head, tokens)
        shown = steps.to_text(query=7)
        assert len(equations(shown)) >= 8
        assert UNROUNDED not in shown
        assert wrong(shown) == []


def test_of_a_long_product_the_largest_terms_are_shown_and_the_rest_is_one_number():
    a, b = [0.01] * 30 + [3.0, -2.0], [1.0] * 30 + [4.0, 5.0]
    shown = dot(a, b, 2.3)
    assert "3×4 + (−2)×5" in shown
    assert shown.endswith("+ (27 more: 0.27) ≈ 2.3")


def test_an_equation_that_is_wrong_would_be_seen():
    assert wrong("→ 0.401×10 + 0.198×0 + 0.401×5 ≈ 6.017") == [
        ("0.401×10 + 0.198×0 + 0.401×5", pytest.approx(6.015), "6.017")
    ]
    assert wrong("→ 57.836 / 5.66 = 10.224") != []
    assert wrong("→ 57.836 / √32 ≈ 10.224") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 − 0.25×2", 0.5),
        ("2^3 / 4", 2.0),
        ("e^0 + exp(0) + √16", 6.0),
        ("(−2)×(−3) − 1", 5.0),
        ("4 × tanh(0 / 4)", 0.0),
        ("0.5 + (26 more: −0.213)", 0.287),
    ],
)
def test_an_expression_is_worth_what_it_says(text, value):
    assert evaluated(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "1 +", "cat", "(1", "1 / 0", "2 3"])
def test_what_is_no_calculation_is_refused(text):
    with pytest.raises(RegardError, match="is no calculation; write numbers"):
        evaluated(text)
