"""Under a mask the longest blocks of several heads come first, if kernels can take these for a batch row."""

from __future__ import annotations

import pytest
import torch

from regard.engine.inputs import Options, problem_of
from regard.engine.triton.hopper.head_order import NEAR, grid, heads_across
from regard.engine.triton.hopper.tma import tile_descriptor
from regard.masks import Causal, Documents, Window


def across(q, k, mask, **options) -> int:
    problem = problem_of(q, k, k, Options(mask, **options))
    return heads_across(problem, problem.q, problem.k, problem.v)


def tensor(batch: int, heads: int, n: int = 32) -> torch.Tensor:
    return torch.zeros(batch, heads, n, 64, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("heads", "group"), [(h, g) for h in (2, 3, 4, 6, 7, 12) for g in (1, 2, 3) if h % g == 0]
)
def test_heads_that_take_turns_divide_all_heads_and_keep_those_together_that_share_keys(heads, group):
    q, k = tensor(2, heads), tensor(2, heads // group)
    found = across(q, k, Causal())
    # Keys are few, so that all can.
    assert found == heads


@pytest.mark.parametrize(
    ("n", "most"), [(NEAR // 12, 12), (NEAR // 7, 6), (NEAR // 2, 2), (NEAR // 2 + 1, 0)]
)
def test_no_more_heads_take_turns_than_have_keys_that_stay_near(n, most):
    assert across(tensor(1, 12, n), tensor(1, 12, n), Causal()) == most


def test_heads_that_share_keys_are_too_many_or_take_turns_together():
    n = NEAR // 5
    assert across(tensor(1, 12, n), tensor(1, 2, n), Causal()) == 0
    assert across(tensor(1, 12, n), tensor(1, 6, n), Causal()) == 4


def test_heads_that_differ_come_one_after_the_other():
    q = tensor(2, 4)
    assert across(q, q, None) == 0
    assert across(q, q, Causal() & Window(8)) == 4
    assert across(q, q, Causal(), sink=torch.zeros(4)) == 0
    ids = torch.stack([torch.arange(32) // 10, torch.arange(32) // 20])
    assert across(q, q, Causal() & Documents(ids=ids)) == 0


def test_heads_of_batch_rows_that_lie_apart_come_one_after_the_other():
    # As projections make them: heads of one token beside one another. Heads and batch rows lie in step.
    q = torch.zeros(2, 32, 4, 64, dtype=torch.bfloat16).transpose(1, 2)
    assert across(q, q, Causal()) == 0
    assert across(q[:1], q[:1], Causal()) == 4


@pytest.mark.parametrize(("batch", "heads", "some"), [(2, 4, 2), (1, 6, 3), (3, 2, 2), (2, 1, 1)])
def test_so_many_heads_are_described_as_a_batch_row(batch, heads, some):
    x = torch.zeros(batch, heads, 32, 64, dtype=torch.bfloat16)
    found, wanted = tile_descriptor(x, 16, some), tile_descriptor(x.view(-1, some, 32, 64), 16)
    assert found.base is x
    assert found.shape == wanted.shape
    assert found.strides == wanted.strides
    assert found.block_shape == wanted.block_shape


def test_every_block_of_every_head_has_a_program():
    assert grid(5, 6, 2, 0) == (5, 6, 2)
    assert grid(5, 6, 2, 3) == (3, 5, 4)
