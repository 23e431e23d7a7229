"""Tensors that score_mod, a bias or a mask read besides their arguments, changed before the backward pass."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from engine.harness import qkv
from regard import attention, observe
from regard.errors import MapError, MaskError, ScoreError
from regard.masks import Causal, Dense, Mask, Where
from regard.scores import ALiBi, Bias, Score

TABLE = torch.zeros(9)


class Shown(Mask):
    """A mask that a user wrote."""

    def __init__(self, shown: torch.Tensor) -> None:
        self.shown = shown

    def allows(self, q, k):
        return self.shown[k] & (k <= q)


class Bonus(Bias):
    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def tile(self, q_pos, k_pos):
        return self.table[k_pos] * (q_pos[:, None] == k_pos)


class Weighed(Score):
    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def tile(self, q, k, *parameters):
        return (q @ k.mT) * self.table[:1]


def times(table, s, b, h, i, j):
    return s * table[j]


READING = {
    "score_mod": lambda x: {"score_mod": lambda s, b, h, i, j: s + x[j]},
    "score_mod of a helper": lambda x: {"score_mod": partial(times, x)},
    "score_mod of a global": lambda x: {"score_mod": lambda s, b, h, i, j: s + TABLE[j]},
    "bias": lambda x: {"bias": Bonus(x)},
    "bias ALiBi": lambda x: {"bias": ALiBi(x[:4])},
    "score": lambda x: {"score": Weighed(x)},
    "mask": lambda x: {"mask": Shown(x > -1)},
    "mask in a join": lambda x: {"mask": Causal() & Where(lambda b, h, q_idx, kv_idx: x[kv_idx] > -1)},
}


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("name", READING)
def test_a_write_between_forward_and_backward_is_noticed(name, backend):
    x = torch.ones(9)
    options = READING[name](x)
    given = qkv(9, 9)
    q = given.pop("q").requires_grad_()
    loss = attention(q, **given, **options, backend=backend).square().sum()
    torch.autograd.grad(loss, q, retain_graph=True)
    written = options["mask"].shown if name == "mask" else TABLE if "global" in name else x
    written.copy_(written)
    part = name.split()[0]
    with pytest.raises(MaskError if part == "mask" else ScoreError) as caught:
        torch.autograd.grad(loss, q)
    assert str(caught.value) == (
        f"{part} reads a tensor that was changed in place, and gradients would be wrong: the backward pass "
        "calls it again. Change what it reads after the backward pass, or let it read a copy."
    )


def test_a_write_before_a_second_derivative_is_noticed():
    given, table = qkv(9, 9), torch.ones(9)
    q = given.pop("q").requires_grad_()
    out = attention(q, **given, score_mod=partial(times, table))
    first = torch.autograd.grad(out.square().sum(), q, create_graph=True)[0]
    table.add_(1)
    with pytest.raises(ScoreError, match=r"^score_mod reads a tensor that was changed in place"):
        torch.autograd.grad(first.sum(), q)


@pytest.mark.parametrize(
    ("part", "make"),
    [
        ("score_mod", lambda kept: {"score_mod": lambda s, b, h, i, j: s * kept["number"]}),
        ("mask", lambda kept: {"mask": Where(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx * kept["number"])}),
    ],
    ids=["score_mod", "mask"],
)
def test_a_number_that_changes_is_noticed(part, make):
    kept, given = {"number": 1}, qkv(9, 9)
    q = given.pop("q").requires_grad_()
    loss = attention(q, **given, **make(kept)).sum()
    seen = observe(q.detach(), **given, **make(kept))
    row = seen.map.row(0, 0, 8)
    kept["number"] = 2
    said = f"^{part} gives other answers than before, "
    with pytest.raises(
        MaskError if part == "mask" else ScoreError, match=f"{said}and gradients would be wrong"
    ):
        torch.autograd.grad(loss, q)
    with pytest.raises(MapError, match=f"{said}so the cells of this map would be wrong. Observe again.$"):
        seen.map.row(0, 0, 8)
    kept["number"] = 1
    assert torch.equal(seen.map.row(0, 0, 8), row)


def test_a_write_to_what_is_not_read_is_no_change():
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.factor = torch.tensor(2.0)

        def forward(self, q, k, v):
            return attention(q, k, v, score_mod=lambda s, b, h, i, j: s * self.factor)

    given, layer = qkv(9, 9), Layer()
    q = given.pop("q").requires_grad_()
    loss = layer(q, **given).sum()
    layer.calls += 1
    assert torch.autograd.grad(loss, q)[0].isfinite().all()


def test_a_mask_that_holds_a_copy_may_outlive_what_it_was_made_of():
    given, flags = qkv(9, 9), torch.ones(9, 9, dtype=torch.bool).tril()
    q = given.pop("q").requires_grad_()
    loss = attention(q, **given, mask=Dense(flags)).sum()
    flags.logical_not_()
    found = torch.autograd.grad(loss, q)[0]
    again = attention(q, **given, mask=Causal()).sum()
    torch.testing.assert_close(found, torch.autograd.grad(again, q)[0])
