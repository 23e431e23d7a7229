"""Functions as masks."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks import Causal, Coverage, Padding, Where

DOCUMENTS = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, 1, 1]])
SLOPES = torch.tensor([1, 2, 3])


def spelled_out(rule: Callable[..., Tensor], batch: int, heads: int, q: int, k: int) -> Tensor:
    """What a mask_mod promises: one answer for one pair of numbers."""
    matrix = torch.empty(batch, heads, q, k, dtype=torch.bool)
    for b in range(batch):
        for h in range(heads):
            for i in range(q):
                for j in range(k):
                    matrix[b, h, i, j] = rule(*(torch.tensor(x) for x in (b, h, i + k - q, j)))
    return matrix


RULES: dict[str, Callable[..., Tensor]] = {
    "causal": lambda b, h, q, k: q >= k,
    "keys alone": lambda b, h, q, k: k < 3,
    "a table by position": lambda b, h, q, k: DOCUMENTS[0][q] == DOCUMENTS[0][k],
    "a table by row and position": lambda b, h, q, k: DOCUMENTS[b, q] == DOCUMENTS[b, k],
    "a table of tables": lambda b, h, q, k: DOCUMENTS[b][q] == DOCUMENTS[b][k],
    "a table by head": lambda b, h, q, k: q - k < SLOPES[h],
    "a stack of indices": lambda b, h, q, k: torch.stack([q, k]).amax(0) < 3,
    "a constant": lambda b, h, q, k: torch.tensor(True),
    "all four": lambda b, h, q, k: (q + 2 * k + 3 * b + 5 * h) % 7 < 3,
}


@pytest.mark.parametrize(("q", "k"), [(1, 1), (1, 5), (5, 5), (3, 5)])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_function_is_asked_about_every_pair(rule: Callable[..., Tensor], q: int, k: int) -> None:
    matrix = Where(rule).bind(2, 3).dense(q, k)
    assert torch.equal(matrix.expand(2, 3, q, k), spelled_out(rule, 2, 3, q, k))


@pytest.mark.parametrize(
    ("name", "batch", "heads"),
    [
        ("causal", None, None),
        ("a table by row and position", 2, None),
        ("a table by head", None, 3),
        ("all four", 2, 3),
    ],
)
def test_a_function_varies_over_the_indices_it_uses(name: str, batch: int | None, heads: int | None) -> None:
    mask = Where(RULES[name]).bind(2, 3)
    assert (mask.batch, mask.heads) == (batch, heads)


def test_a_function_is_called_on_broadcasting_indices_where_it_can_be() -> None:
    shapes = []

    def rule(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        shapes.append([tuple(x.shape) for x in (b, h, q_idx, kv_idx)])
        return q_idx >= kv_idx

    Where(rule).bind(2, 3).dense(4, 5)
    assert shapes[-1] == [(2, 1, 1, 1), (1, 3, 1, 1), (1, 1, 4, 1), (1, 1, 1, 5)]


def test_a_function_that_answers_with_too_many_dimensions_is_called_pair_by_pair() -> None:
    ranks = []

    def rule(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        ranks.append(q_idx.ndim)
        return DOCUMENTS[b][q_idx] == DOCUMENTS[b][kv_idx]

    Where(rule).bind(2, 3).dense(5)
    assert ranks[-1] == 0


def test_an_unbound_function_answers_for_row_0_and_head_0() -> None:
    mask = Where(RULES["all four"])
    assert torch.equal(mask.dense(5), spelled_out(RULES["all four"], 1, 1, 5, 5))
    mask.check(q=5, k=5, batch=2, heads=3)
    assert mask.select(1) is mask


def test_a_row_selected_from_a_bound_function_keeps_its_number() -> None:
    mask = Where(RULES["all four"]).bind(2, 3)
    row = mask.select(1)
    assert torch.equal(row.dense(5), mask.dense(5)[1:])
    assert row.bind(1, 3) is row


def test_binding_again_changes_the_sizes() -> None:
    mask = Where(RULES["all four"]).bind(2, 3)
    assert mask.bind(2, 3) is mask
    assert mask.bind(4, 1).dense(5).shape == (4, 1, 5, 5)


def test_a_function_bound_to_other_sizes_is_refused() -> None:
    mask = Where(RULES["all four"]).bind(2, 3)
    with pytest.raises(MaskError, match=re.escape("Where holds 2 batch rows and q has 4; bind it again")):
        mask.check(5, 5, 4, 3)
    with pytest.raises(MaskError, match=re.escape("Where holds 3 heads and q has 1; bind it again")):
        mask.check(5, 5, 2, 1)


def test_functions_are_equal_when_they_are_the_same_function() -> None:
    assert Where(RULES["causal"]) == Where(RULES["causal"])
    assert hash(Where(RULES["causal"])) == hash(Where(RULES["causal"]))
    assert Where(RULES["causal"]) != Where(RULES["causal"], origin=1)
    assert Where(RULES["causal"]) != Where(lambda b, h, q, k: q >= k)


def test_a_function_joins_with_a_ragged_batch() -> None:
    mask = (Where(RULES["all four"]) & Padding.from_lengths([2, 5], 5)).bind(2, 3)
    expected = spelled_out(RULES["all four"], 2, 3, 5, 5) & Padding.from_lengths([2, 5], 5).dense(5)
    assert torch.equal(mask.dense(5), expected)
    assert mask.pairs(5) == int(expected.sum())


@pytest.mark.parametrize(
    ("answer", "got"), [(1.0, "a float"), (True, "a bool"), (torch.ones(()), "a torch.float32 tensor")]
)
def test_a_function_must_answer_with_a_bool_tensor(answer: object, got: str) -> None:
    message = f"Where's mask_mod returned {got}; it must return a bool tensor, True = may attend."
    with pytest.raises(MaskError, match=re.escape(message)):
        Where(lambda b, h, q_idx, kv_idx: answer).dense(3)


def test_a_function_that_fails_raises_what_it_raised() -> None:
    def rule(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        raise LookupError("no such table")

    mask = Where(rule)
    assert mask.coverage((0, 4), (0, 4)) == Coverage.PARTIAL
    with pytest.raises(LookupError, match="no such table"):
        mask.dense(3)


def test_written_form_names_the_function() -> None:
    def sliding(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return q_idx - kv_idx < 5

    assert repr(Where(sliding)) == "Where(sliding)"
    assert repr(Causal() & Where(sliding, origin=2)) == "Causal() & Where(sliding, origin=2)"
