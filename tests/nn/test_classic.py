"""The classic mechanisms against their papers' formulas, written out densely."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from regard import ColumnMass, Entropy
from regard.errors import MaskError, ScoreError, ShapeError
from regard.nn import Bahdanau, Decomposable, Luong

LENGTHS = [9, 4, 1]
VALID = torch.arange(9) < torch.tensor(LENGTHS)[:, None]


def sequences(query_dim: int = 6, memory_dim: int = 8, q: int = 5):
    query = torch.randn(3, q, query_dim, dtype=torch.float64, requires_grad=True)
    return query, torch.randn(3, 9, memory_dim, dtype=torch.float64, requires_grad=True)


def normalised(scores, allowed):
    """Softmax over what is allowed; rows with nothing are 0."""
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return torch.where(allowed.any(-1, keepdim=True), weights, 0.0)


def assert_same_with_gradients(got, want, module, *inputs):
    wanted = [*inputs, *module.parameters()]
    torch.testing.assert_close(got, want)
    gradients = [torch.autograd.grad(x.sin().sum(), wanted, allow_unused=True) for x in (got, want)]
    for mine, theirs, x in zip(*gradients, wanted, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(x) if theirs is None else theirs)


def test_bahdanau_is_the_papers_formula_gradients_included():
    look = Bahdanau(6, 8, 5).double()
    query, memory = sequences()
    hidden = torch.tanh((query @ look.w)[:, :, None] + (memory @ look.u)[:, None])
    weights = normalised(hidden @ look.v, VALID[:, None])
    assert_same_with_gradients(look(query, memory, LENGTHS), weights @ memory, look, query, memory)
    seen = look.observe(query, memory, LENGTHS, stats=[Entropy(), ColumnMass()])
    torch.testing.assert_close(seen.map.dense()[:, 0], weights.detach())
    torch.testing.assert_close(seen.entropy[:, 0], torch.special.entr(weights.detach()).sum(-1))
    torch.testing.assert_close(seen.out, weights @ memory)


def luong_scores(look, query, memory):
    if look.kind == "dot":
        return query @ memory.mT
    if look.kind == "general":
        return query @ look.weight @ memory.mT
    pairs = torch.cat([query[:, :, None].expand(-1, -1, 9, -1), memory[:, None].expand(-1, 5, -1, -1)], -1)
    return torch.tanh(pairs @ look.weight) @ look.v


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_luong_global_is_the_papers_formula_gradients_included(score, lengths):
    look = Luong(8, 8, score).double()
    query, memory = sequences(8)
    allowed = VALID if lengths else torch.ones_like(VALID)
    weights = normalised(luong_scores(look, query, memory), allowed[:, None].expand(-1, 5, -1))
    assert_same_with_gradients(look(query, memory, lengths), weights @ memory, look, query, memory)
    torch.testing.assert_close(look.observe(query, memory, lengths).map.dense()[:, 0], weights.detach())


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("start", [0, 3, 20])
def test_luong_local_m_sees_the_memory_around_the_queries_own_number(score, start):
    look = Luong(8, 8, score, "local-m", reach=2).double()
    query, memory = sequences(8)
    near = (torch.arange(9) - (start + torch.arange(5))[:, None]).abs() <= 2
    weights = normalised(luong_scores(look, query, memory), near & VALID[:, None])
    out = look(query, memory, LENGTHS, start=start)
    torch.testing.assert_close(out, weights @ memory)
    torch.testing.assert_close(
        look.observe(query, memory, LENGTHS, start).map.dense()[:, 0], weights.detach()
    )


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("reach", [1, 3, 50])
def test_luong_local_p_is_the_papers_formula_gradients_included(score, reach):
    look = Luong(8, 8, score, "local-p", reach=reach).double()
    query, memory = sequences(8)
    share = torch.sigmoid(torch.tanh(query @ look.place_weight) @ look.place_v)
    place = torch.tensor(LENGTHS)[:, None] * share
    away = torch.arange(9) - place[..., None]
    weights = normalised(luong_scores(look, query, memory), (away.abs() <= reach) & VALID[:, None])
    weights = weights * torch.exp(-(away**2) / (2 * (reach / 2) ** 2))
    torch.testing.assert_close(look.place(query, memory, LENGTHS), place)
    assert_same_with_gradients(look(query, memory, LENGTHS), weights @ memory, look, query, memory)
    seen = look.observe(query, memory, LENGTHS)
    shown = (weights / weights.sum(-1, keepdim=True)).detach()
    torch.testing.assert_close(seen.map.dense()[:, 0], shown)


def test_the_gradient_of_local_p_reaches_its_position_predictor_and_moves_it_to_the_target():
    look = Luong(4, 9, "general", "local-p", reach=3)
    memory, query = torch.eye(9)[None], torch.randn(1, 1, 4)
    nn.init.zeros_(look.weight)  # no score prefers any state: the place alone must move
    optimizer = torch.optim.Adam([look.place_weight, look.place_v], lr=0.2)
    for _ in range(20):
        optimizer.zero_grad()
        (-look(query, memory)[0, 0, 6]).backward()
        assert bool(look.place_weight.grad.any())
        assert bool(look.place_v.grad.any())
        optimizer.step()
    assert abs(look.place(query, memory).item() - 6) < 0.6


def test_decomposable_is_the_papers_three_steps_gradients_included():
    model = Decomposable(6, 7, classes=3).double()
    a, b = sequences(6, 6)
    a_lengths = [5, 2, 3]
    a_valid, b_valid = torch.arange(5) < torch.tensor(a_lengths)[:, None], VALID
    scores = model.f(a) @ model.f(b).mT
    ahead = normalised(scores, b_valid[:, None].expand(-1, 5, -1))
    back = normalised(scores.mT, a_valid[:, None].expand(-1, 9, -1))
    v1 = model.g(torch.cat([a, ahead @ b], -1)) * a_valid[..., None]
    v2 = model.g(torch.cat([b, back @ a], -1)) * b_valid[..., None]
    want = model.h(torch.cat([v1.sum(1), v2.sum(1)], -1))
    assert_same_with_gradients(model(a, b, a_lengths, LENGTHS), want, model, a, b)
    seen = model.observe(a, b, a_lengths, LENGTHS, stats=[Entropy()])
    torch.testing.assert_close(seen.logits, want)
    torch.testing.assert_close(seen.ahead.map.dense()[:, 0], ahead.detach())
    torch.testing.assert_close(seen.back.map.dense()[:, 0], back.detach())
    assert seen.back.entropy.shape == (3, 1, 9)


def test_what_stands_behind_the_end_of_a_sentence_changes_nothing():
    model = Decomposable(6, 7, classes=3).double()
    a, b = (x.detach() for x in sequences(6, 6))
    want = model(a, b, None, LENGTHS)
    worse = b.masked_fill(~VALID[..., None], torch.nan)
    torch.testing.assert_close(model(a, worse, None, LENGTHS), want)


def test_one_step_at_a_time_is_all_steps_at_once():
    query, memory = sequences(8)
    for look in (Bahdanau(8, 8, 5), Luong(8, 8), Luong(8, 8, "concat", "local-p", 2)):
        look.double()
        steps = [look(step, memory, LENGTHS) for step in query.split(1, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), look(query, memory, LENGTHS))
    local = Luong(8, 8, "dot", "local-m", 2)
    steps = [local(step, memory, start=i) for i, step in enumerate(query.split(1, 1))]
    torch.testing.assert_close(torch.cat(steps, 1), local(query, memory))


A, B = torch.zeros(2, 3, 6), torch.zeros(2, 9, 8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Luong(6, 8, "dott"), ScoreError, "score is 'dott'; it must be one of 'dot', 'general',"),
        (lambda: Luong(6, 8, where="near"), ScoreError, "where is 'near'; it must be one of 'global',"),
        (lambda: Luong(6, 8, "dot"), ShapeError, "a dot product needs equal dims. Use score='general'."),
        (
            lambda: Luong(6, 8, where="local-m"),
            ScoreError,
            "reach is None and where is 'local-m'; reach must be a whole number above 0.",
        ),
        (
            lambda: Luong(6, 8, reach=2),
            ScoreError,
            "reach is 2 and where is 'global'; reach must be None.",
        ),
        (
            lambda: Bahdanau(6, 8, 5)(B, B),
            ShapeError,
            "query has shape (2, 9, 8); it must be (batch, length, 6).",
        ),
        (
            lambda: Luong(6, 8)(A[:1], B),
            ShapeError,
            "query has 1 and memory has 2 batch rows; they must be equal.",
        ),
        (
            lambda: Bahdanau(6, 8, 5)(A, B, lengths=[9]),
            ShapeError,
            "lengths holds 1 lengths for 2 batch rows; give one per row.",
        ),
        (lambda: Bahdanau(6, 8, 5)(A, B, lengths=[9, 10]), MaskError, "got length 10 in row 1"),
        (
            lambda: Decomposable(6, 7, 3)(A, A, b_lengths=[3]),
            ShapeError,
            "b_lengths holds 1 lengths for 2 batch rows; give one per row.",
        ),
    ],
)
def test_what_is_wrong_is_said(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
