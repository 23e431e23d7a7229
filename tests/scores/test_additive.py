"""The scores of Bahdanau and Luong that run a small network on every pair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from regard.errors import ShapeError
from regard.scores import Additive, Concat, Score, additive


def run(score: Score, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return score.tile(*score.prepare(q, k), *score.parameters())


def double(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("length", [1, 63, 65])
def test_additive_is_v_times_tanh_of_the_sum_for_every_pair(length):
    q, k = double(2, 2, 3, 5), double(2, 2, length, 4)
    w_q, w_k, v = double(5, 7), double(4, 7), double(7)
    scores = run(Additive(w_q, w_k, v), q, k)
    assert scores.shape == (2, 2, 3, length)
    for i in range(3):
        for j in range(length):
            expected = torch.tanh(q[1, 0, i] @ w_q + k[1, 0, j] @ w_k) @ v
            torch.testing.assert_close(scores[1, 0, i, j], expected)


@pytest.mark.parametrize("length", [1, 63])
def test_concat_joins_query_and_key_for_every_pair(length):
    q, k = double(1, 2, 3, 5), double(1, 2, length, 2)
    weight, v = double(7, 4), double(4)
    scores = run(Concat(weight, v), q, k)
    for i in range(3):
        for j in range(length):
            joined = torch.cat([q[0, 1, i], k[0, 1, j]])
            torch.testing.assert_close(scores[0, 1, i, j], torch.tanh(joined @ weight) @ v)


@pytest.mark.parametrize("slice_elements", [1, 40, 1 << 22])
def test_additive_gradients_are_right_however_it_is_sliced(monkeypatch, slice_elements):
    monkeypatch.setattr(additive, "SLICE_ELEMENTS", slice_elements)
    inputs = double(1, 2, 3, 4), double(1, 2, 2, 3), double(4, 5), double(3, 5), double(5)
    assert gradcheck(lambda q, k, w_q, w_k, v: run(Additive(w_q, w_k, v), q, k), inputs)


def test_the_gradient_of_v_stays_exact_over_a_million_pairs():
    q, k = torch.full((1, 1000, 3), 0.1), torch.full((1, 1000, 3), 0.2)
    v = torch.ones(3, requires_grad=True)
    scores = additive.tanh_tile(q, k, v)
    [grad] = torch.autograd.grad(scores, v, torch.ones_like(scores))
    # Added one by one these would be off by a few in a thousand.
    torch.testing.assert_close(grad, 1e6 * torch.tanh(q[0, 0] + k[0, 0]))


def test_concat_gradients_are_right():
    inputs = double(1, 2, 3, 2), double(1, 2, 4, 3), double(5, 3), double(3)
    assert gradcheck(lambda q, k, weight, v: run(Concat(weight, v), q, k), inputs)


def test_gradients_are_right_when_keys_are_shared_by_heads():
    inputs = double(2, 3, 2, 4), double(1, 1, 3, 4), double(4)
    assert gradcheck(additive.tanh_tile, inputs)


@given(
    q_length=st.integers(1, 9),
    k_length=st.integers(1, 9),
    hidden=st.integers(1, 9),
    slice_elements=st.integers(1, 200),
)
def test_slicing_the_hidden_layer_changes_nothing(q_length, k_length, hidden, slice_elements):
    q, k, v = double(2, q_length, hidden), double(2, k_length, hidden), double(hidden)
    expected = torch.tanh(q[:, :, None] + k[:, None]) @ v
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additive, "SLICE_ELEMENTS", slice_elements)
        torch.testing.assert_close(additive.tanh_tile(q, k, v), expected)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor any operation made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            self.elements = max(self.elements, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


def test_neither_direction_of_a_tile_ever_holds_the_whole_hidden_layer(monkeypatch):
    monkeypatch.setattr(additive, "SLICE_ELEMENTS", 20_000)
    q, k, v = double(63, 256), double(65, 256), double(256)
    with Largest() as largest:
        torch.autograd.grad(additive.tanh_tile(q, k, v).sum(), (q, k, v))
    assert largest.elements <= 20_000 < 63 * 65 * 256


def test_a_low_precision_v_follows_the_queries():
    v = torch.randn(3, dtype=torch.bfloat16, requires_grad=True)
    scores = additive.tanh_tile(torch.randn(2, 3), torch.randn(4, 3), v)
    assert scores.dtype == torch.float32
    scores.sum().backward()
    assert v.grad is not None
    assert v.grad.dtype == torch.bfloat16


def test_only_v_is_left_for_the_tiles():
    v = torch.randn(3)
    assert Additive(torch.randn(4, 3), torch.randn(4, 3), v).parameters() == (v,)
    assert Concat(torch.randn(8, 3), v).parameters() == (v,)


@pytest.mark.parametrize("shapes", [((4, 3), (4, 3), (2,)), ((4, 3), (4, 2), (3,)), ((4,), (4, 4), (4,))])
def test_additive_refuses_shapes_that_do_not_meet(shapes):
    message = r"Additive has w_q .* and v .*; wanted \(dim_q, hidden\), \(dim_k, hidden\) and \(hidden,\)"
    with pytest.raises(ShapeError, match=message):
        Additive(*(torch.ones(shape) for shape in shapes))


@pytest.mark.parametrize("shapes", [((8, 3), (2,)), ((8,), (8,)), ((8, 3), (3, 1))])
def test_concat_refuses_shapes_that_do_not_meet(shapes):
    message = r"Concat has weight .* and v .*; wanted \(dim_q \+ dim_k, hidden\) and \(hidden,\)"
    with pytest.raises(ShapeError, match=message):
        Concat(*(torch.ones(shape) for shape in shapes))


def test_additive_says_which_of_its_weights_does_not_fit():
    score = Additive(torch.ones(4, 3), torch.ones(5, 3), torch.ones(3))
    with pytest.raises(ShapeError, match=r"k has dim 4 and w_k of Additive is \(5, 3\); .* dim = 4"):
        score.check(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
    with pytest.raises(ShapeError, match=r"q has dim 5 and w_q of Additive is \(4, 3\); .* dim = 5"):
        score.check(torch.ones(1, 1, 2, 5), torch.ones(1, 1, 2, 5))


def test_concat_says_how_many_rows_its_weight_needs():
    message = r"q has dim 4, k has dim 5 and weight of Concat is \(8, 3\); it needs 9 rows, those for q first"
    with pytest.raises(ShapeError, match=message):
        Concat(torch.ones(8, 3), torch.ones(3)).check(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 5))
