"""PyTorch's default dtype and device are for the tensors of the caller, not for those of the engine."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from engine.harness import qkv
from regard import Causal, ColumnMass, Decay, Entropy, MaxScore, TopK, Window, attention, observe
from regard.models.segment import tensors_of
from regard.stats import SinkMass

ROWS = [Entropy(), MaxScore(), SinkMass()]


@contextmanager
def double_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "default", [double_by_default, lambda: torch.device("meta")], ids=["dtype", "device"]
)
@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(5)], ids=str)
@pytest.mark.parametrize("stats", [ROWS, [*ROWS, ColumnMass(), Decay(), TopK(3)]], ids=["rows", "map"])
@pytest.mark.parametrize("length", [40, 300])
def test_a_default_changes_no_bit(default, mask, stats, length):
    x = qkv(length, length)
    out, seen = attention(**x, mask=mask), observe(**x, mask=mask, stats=stats)
    for scale in (None, None, None, 0.25):
        with default():
            again = observe(**x, mask=mask, stats=stats, scale=scale)
            assert torch.equal(attention(**x, mask=mask, scale=scale), out)
        assert torch.equal(again.out, seen.out)
        for name, value in again.stats.items():
            for ours, theirs in zip(tensors_of(value), tensors_of(seen.stats[name]), strict=True):
                assert ours.dtype == theirs.dtype
                assert torch.equal(ours, theirs)
