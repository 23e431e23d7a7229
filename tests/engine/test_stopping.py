"""A pass over a map ends early where somebody asks for it, and is the same to the last bit otherwise."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.engine.stopping import check, may_stop, stoppable
from regard.stats import ColumnMass, Custom, Decay, Entropy

N = 1500


class Stopped(Exception):
    """Somebody stopped it."""


def seen() -> regard.AttentionMap:
    q, k = torch.randn(2, 1, 3, N, 16, generator=torch.Generator().manual_seed(0))
    found = regard.AttentionMap.of(q[None, 0], k[None, 0], mask=regard.Causal())
    assert found.lse.isfinite().all()
    return found


def asked(times: int):
    """Stops when it is asked for that time, and counts."""
    count = [0]

    def ask() -> None:
        count[0] += 1
        if count[0] == times:
            raise Stopped

    return ask, count


PASSES = {
    "folded": (Decay(signed=True), ColumnMass(), Entropy()),
    "shown": (Custom(lambda tile: tile.weights.sum(-1), "rows").named("sums"),),
}


@pytest.mark.parametrize("statistics", PASSES.values(), ids=PASSES)
def test_a_pass_is_ended_by_what_is_asked_within_it(statistics):
    ask, count = asked(2)
    with stoppable(ask), pytest.raises(Stopped):
        seen().stats(*statistics)
    assert count == [2]


@pytest.mark.parametrize("statistics", PASSES.values(), ids=PASSES)
def test_a_pass_that_may_be_stopped_has_the_same_bits(statistics):
    ask, count = asked(-1)
    with stoppable(ask):
        found = seen().stats(*statistics)
    assert count[0] > 1
    for name, value in seen().stats(*statistics).items():
        assert all(torch.equal(x, y) for x, y in zip(tensors(value), tensors(found[name]), strict=True))


def tensors(value):
    return [value] if isinstance(value, torch.Tensor) else [x for x in value if isinstance(x, torch.Tensor)]


def test_outside_the_block_nothing_is_asked():
    ask, count = asked(1)
    with stoppable(ask):
        assert may_stop()
    check()
    assert not may_stop()
    assert count == [0]
