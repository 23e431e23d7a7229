"""The soft cap."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from regard.errors import ScoreError
from regard.scores import soft_cap


@given(s=st.floats(-1e4, 1e4), cap=st.floats(0.1, 1e3))
def test_soft_cap_is_cap_times_tanh_of_s_over_cap(s, cap):
    capped = soft_cap(torch.tensor([s], dtype=torch.float64), cap).item()
    assert capped == pytest.approx(cap * math.tanh(s / cap), rel=1e-12)
    assert abs(capped) <= min(cap, abs(s) + 1e-12)


def test_a_score_of_minus_infinity_stays_and_sends_no_gradient_back():
    s = torch.tensor([-torch.inf, -1e30, 0.5], requires_grad=True)
    capped = soft_cap(s, 2.0)
    assert capped[:2].tolist() == [-math.inf, -2.0]
    assert torch.autograd.grad(capped[1:].sum(), s)[0][0] == 0


def test_soft_cap_gradients_are_right():
    s = torch.randn(63, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: soft_cap(s, 2.0), s)


@pytest.mark.parametrize("cap", [0.0, -1.0, math.inf, math.nan])
def test_soft_cap_refuses_what_is_no_cap(cap):
    message = f"soft cap is {cap}; it must be a finite number above 0. Leave it out for no cap"
    with pytest.raises(ScoreError, match=message):
        soft_cap(torch.ones(3), cap)
