"""The bilinear score."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from regard.errors import ShapeError
from regard.scores import General


def run(score: General, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return score.tile(*score.prepare(q, k), *score.parameters())


@pytest.mark.parametrize("length", [1, 63, 65])
def test_general_is_q_times_weight_times_k(length):
    q, k = torch.randn(2, 3, length, 5).double(), torch.randn(2, 3, 7, 4).double()
    weight = torch.randn(5, 4).double()
    expected = torch.einsum("bhid,de,bhje->bhij", q, weight, k)
    torch.testing.assert_close(run(General(weight), q, k), expected)


def test_general_with_a_matrix_per_head_uses_each_heads_own():
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 6, 2)
    weight = torch.randn(3, 4, 2)
    each = [run(General(weight[h]), q[:, h : h + 1], k[:, h : h + 1]) for h in range(3)]
    torch.testing.assert_close(run(General(weight), q, k), torch.cat(each, dim=1))


def test_general_leaves_the_keys_of_grouped_queries_alone():
    q, k = torch.randn(1, 6, 5, 4), torch.randn(1, 2, 5, 3)
    score = General(torch.randn(6, 4, 3))
    score.check(q, k)
    q_ready, k_ready = score.prepare(q, k)
    assert q_ready.shape == (1, 6, 5, 3)
    assert k_ready is k


def test_general_gradients_reach_the_weight():
    q = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(1, 2, 5, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda q, k, weight: run(General(weight), q, k), (q, k, weight))


def test_general_takes_the_dtype_of_the_queries():
    q = torch.randn(1, 1, 3, 4, dtype=torch.bfloat16)
    assert run(General(torch.randn(4, 4)), q, q).dtype == torch.bfloat16


def test_general_refuses_a_weight_of_another_rank():
    message = r"weight of General has shape \(4,\); wanted \(dim_q, dim_k\) or \(heads, dim_q, dim_k\)"
    with pytest.raises(ShapeError, match=message):
        General(torch.ones(4))


def test_general_refuses_a_transposed_weight():
    message = r"weight of General is \(3, 4\), q has dim 4 and k has dim 3; .*\(dim_q, dim_k\) = \(4, 3\)"
    with pytest.raises(ShapeError, match=message):
        General(torch.ones(3, 4)).check(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 3))


def test_general_refuses_a_matrix_per_key_head():
    message = "weight of General has 2 heads and q has 6; give one matrix per query head"
    with pytest.raises(ShapeError, match=message):
        General(torch.ones(2, 4, 4)).check(torch.ones(1, 6, 2, 4), torch.ones(1, 2, 2, 4))
