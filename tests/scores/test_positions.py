"""Layers without rotation, query temperature, and Llama 4's mixture."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from regard.errors import ScoreError, ShapeError
from regard.scores import Interleaved, NoPosition, QueryTemperature, Rotary


@given(position=st.integers(0, 10_000_000), floor=st.integers(1, 10_000), strength=st.floats(0, 2))
def test_temperature_is_the_published_multiplier(position, floor, strength):
    expected = math.log(math.floor((position + 1) / floor) + 1) * strength + 1
    found = QueryTemperature(floor, strength).multiplier(torch.tensor([position]), torch.float64)
    assert found.item() == pytest.approx(expected)


def test_temperature_of_llama_4_rises_first_at_position_8191():
    found = QueryTemperature().multiplier(torch.tensor([0, 8190, 8191, 16382, 16383]))
    assert found.tolist() == pytest.approx(
        [1, 1, 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(3)]
    )


def test_temperature_multiplies_every_query_by_its_position():
    q = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    temperature = QueryTemperature(floor=4)
    found = temperature.apply(q, offset=63)
    for i in range(5):
        factor = 1 + 0.1 * math.log(1 + (64 + i) // 4)
        torch.testing.assert_close(found[:, :, i], q[:, :, i] * factor)
    assert torch.equal(found, temperature.apply(q, torch.arange(63, 68)))


def test_temperature_takes_positions_per_sequence():
    q = torch.ones(2, 3, 2, 1)
    found = QueryTemperature(floor=1, strength=1.0).apply(q, torch.tensor([[0, 1], [2, 3]]))
    expected = 1 + torch.log(torch.tensor([[2.0, 3.0], [4.0, 5.0]]))
    torch.testing.assert_close(found[:, 2, :, 0], expected)


def test_temperature_keeps_the_dtype_and_is_computed_beyond_it():
    q = torch.ones(1, 1, 1, 1, dtype=torch.bfloat16)
    found = QueryTemperature(floor=1, strength=1.0).apply(q, offset=300)
    assert found.dtype == torch.bfloat16
    assert found.item() == torch.tensor(1 + math.log(302)).bfloat16().item()


def test_temperature_before_the_start_is_that_of_the_start():
    found = QueryTemperature(floor=1, strength=1.0).multiplier(torch.tensor([-5, -1, 0]))
    assert found.tolist() == pytest.approx([1 + math.log(2)] * 3)


def test_temperature_gradients_are_right():
    q = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda q: QueryTemperature(floor=2).apply(q, offset=7), q)


def test_no_position_changes_nothing():
    q, k = torch.randn(1, 2, 63, 4), torch.randn(1, 2, 65, 4)
    assert NoPosition().rotate(q, offset=5) is q
    assert NoPosition().rotate_pair(q, k) == (q, k)


def test_no_position_with_a_temperature_sharpens_queries_at_the_end_of_the_keys():
    q, k, temperature = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 65, 4), QueryTemperature(floor=8)
    q_found, k_found = NoPosition(temperature).rotate_pair(q, k)
    assert k_found is k
    assert torch.equal(q_found, temperature.apply(q, offset=62))
    assert not torch.equal(q_found, q)
    q_placed, _ = NoPosition(temperature).rotate_pair(q, k, torch.arange(1000, 1065))
    assert torch.equal(q_placed, temperature.apply(q, offset=1062))


def test_every_fourth_layer_of_llama_4_goes_without_rotation():
    rotary, temperature = Rotary(64), QueryTemperature()
    layers = [Interleaved(rotary, temperature=temperature).layer(i) for i in range(9)]
    assert layers == [rotary, rotary, rotary, NoPosition(temperature)] * 2 + [rotary]


def test_an_interleaved_scheme_of_every_layer_never_rotates():
    scheme = Interleaved(Rotary(64), every=1)
    assert {scheme.layer(i) for i in range(3)} == {NoPosition()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"floor": 0}, "QueryTemperature has floor 0; it must be at least 1 position"),
        ({"strength": -0.1}, "QueryTemperature has strength -0.1; it must be finite, 0 or more"),
        ({"strength": math.nan}, "QueryTemperature has strength nan; it must be finite, 0 or more"),
    ],
)
def test_temperature_refuses_what_cannot_be(options, message):
    with pytest.raises(ScoreError, match=message):
        QueryTemperature(**options)


def test_temperature_refuses_a_tensor_without_heads():
    with pytest.raises(
        ShapeError, match=r"got a tensor of shape \(3, 4\); wanted \(batch, heads, length, dim\)"
    ):
        QueryTemperature().apply(torch.ones(3, 4))


def test_interleaved_refuses_an_interval_of_nothing():
    with pytest.raises(ScoreError, match="Interleaved has every=0; it must be at least 1 layer"):
        Interleaved(Rotary(64), every=0)


def test_interleaved_refuses_a_negative_layer():
    with pytest.raises(ScoreError, match="there is no layer -1; layers count from 0"):
        Interleaved(Rotary(64)).layer(-1)
