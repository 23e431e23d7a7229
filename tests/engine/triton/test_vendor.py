"""Which of NVIDIA's kernels a shape goes to: cuDNN thinks about each one, and only some come often enough."""

from __future__ import annotations

import pytest
import torch

from regard import Causal, ColumnMass, attention, observe
from regard.engine.inputs import Options, problem_of
from regard.engine.triton import vendor


@pytest.fixture(autouse=True)
def _nothing_seen():
    vendor._spent.clear()
    yield
    vendor._spent.clear()


def problem(n: int, mask=None, heads: int = 2, q: int | None = None):
    q_len = n if q is None else q
    x, y = (torch.empty(1, heads, m, 128, dtype=torch.bfloat16) for m in (q_len, n))
    return problem_of(x, y, y, Options(mask))


def calls(make, learns: bool = False, most: int = 100_000) -> int:
    """How many calls of a shape do not go to cuDNN."""
    return next(i for i in range(most) if vendor.visit(make(), learns))


def test_a_shape_goes_to_cudnn_when_it_has_come_for_long_enough():
    short, long = problem(1000, heads=64), problem(4000, heads=64)
    many, few = calls(lambda: short), calls(lambda: long)
    assert 14 * few < many < 18 * few
    # From then on always.
    assert vendor.visit(short)
    assert vendor.visit(long)


def test_a_shape_that_is_new_does_not():
    assert calls(lambda: problem(4000, heads=64)) > 0
    for other in (problem(4001, heads=64), problem(4000, heads=64, mask=Causal()), problem(4000, heads=32)):
        assert not vendor.visit(other)
    # Nor does one token after the other.
    assert not any(vendor.visit(problem(n, q=1)) for n in range(5000, 5100) for _ in range(32))


def test_with_gradients_there_is_more_to_think_about_and_more_to_lose():
    wanted = problem(4000, heads=64)
    forward = calls(lambda: wanted)
    assert calls(lambda: wanted, learns=True) == forward


def test_who_asks_for_the_same_bits_has_cudnn_at_once():
    torch.use_deterministic_algorithms(True)
    try:
        assert vendor.visit(problem(100))
    finally:
        torch.use_deterministic_algorithms(False)
    assert not vendor.visit(problem(100))


def test_only_so_many_shapes_are_remembered(monkeypatch):
    monkeypatch.setattr(vendor, "MOST", 3)
    for n in range(1, 10):
        vendor.visit(problem(n))
    assert len(vendor._spent) == 3


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9, reason="needs cuDNN's kernels"
)
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("mask", [None, Causal()], ids=str)
def test_both_kernels_agree_and_records_follow_the_change(monkeypatch, mask, kv_heads):
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(2, heads, 300, 128, dtype=torch.bfloat16, device="cuda")
        for heads in (4, kv_heads, kv_heads)
    )
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    exact = attention(*wide, mask, backend="torch")
    upstream = torch.randn_like(q)
    changes = torch.autograd.grad(exact, wide, upstream.double())
    mass = observe(
        q.double(), k.double(), v.double(), mask, stats=[ColumnMass()], backend="torch"
    ).column_mass
    name = vendor.CUDNN
    for patience in (torch.inf, 0.0):
        monkeypatch.setattr(vendor, "PATIENCE", patience)
        # A kernel that must not be asked for is not there.
        monkeypatch.setattr(vendor, "CUDNN" if patience else "FLASH", "no such kernel")
        monkeypatch.setattr(vendor, "_has_cudnn", lambda device: True)
        for _ in range(5):
            outs = [attention(q, k, v, mask), attention(q, k, v, mask, backend="triton")]
            seen = observe(q, k, v, mask, stats=[ColumnMass()])
            own = [x.clone().requires_grad_() for x in (q, k, v)]
            outs += [seen.out, attention(*own, mask)]
            found = [(out, exact) for out in outs]
            found += zip(torch.autograd.grad(outs[-1], own, upstream), changes, strict=True)
            for got, wanted in found:
                assert (got.double() - wanted).norm() < 0.01 * wanted.norm()
            torch.testing.assert_close(seen.column_mass.double(), mass, rtol=1e-3, atol=1e-3)
        monkeypatch.setattr(vendor, "CUDNN", name)
