"""Which of NVIDIA's kernels a call goes to: cuDNN thinks about every shape, and not all are worth it."""

from __future__ import annotations

import pytest
import torch

from regard import Causal, ColumnMass, attention, observe
from regard.engine.inputs import Options, problem_of
from regard.engine.triton.forward import vendor
from regard.engine.triton.hopper import support


def problem(n: int, mask=None, heads: int = 32, q: int | None = None, batch: int = 1):
    shapes = ((batch, heads, n if q is None else q, 128), (batch, heads, n, 128))
    x, y = (torch.empty(shape, dtype=torch.bfloat16) for shape in shapes)
    return problem_of(x, y, y, Options(mask))


def test_much_work_is_worth_the_thought():
    assert vendor.worth_autotuning(problem(4096))
    assert vendor.worth_autotuning(problem(4096, mask=Causal()))
    assert vendor.worth_autotuning(problem(1024, batch=16, heads=16))
    assert vendor.worth_autotuning(problem(1024, batch=16, heads=16, mask=Causal()))


def test_a_short_prompt_is_not():
    assert not vendor.worth_autotuning(problem(1000))
    assert not vendor.worth_autotuning(problem(1500, mask=Causal()))


def test_nor_is_a_step_of_an_answer_however_long_that_is():
    assert not vendor.worth_autotuning(problem(100_000, q=1, heads=2))
    assert not vendor.worth_autotuning(problem(500_000, q=8, heads=1, batch=1))


def test_what_came_before_does_not_matter():
    short, long = problem(1000), problem(4096)
    answers = [[vendor.worth_autotuning(x) for x in (short, long)] for _ in range(1000)]
    assert answers == [[False, True]] * 1000


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9, reason="needs cuDNN's kernels"
)
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("mask", [None, Causal()], ids=str)
@pytest.mark.parametrize("quick", [torch.inf, 0.0], ids=["flash", "cudnn"])
def test_both_kernels_are_right_and_only_one_is_asked(monkeypatch, quick, mask, kv_heads):
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(2, heads, 300, 128, dtype=torch.bfloat16, device="cuda")
        for heads in (4, kv_heads, kv_heads)
    )
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    exact = attention(*wide, mask, backend="torch")
    upstream = torch.randn_like(q)
    changes = torch.autograd.grad(exact, wide, upstream.double())
    mass = observe(*(x.detach() for x in wide), mask, stats=[ColumnMass()], backend="torch").column_mass
    monkeypatch.setattr(vendor, "AUTOTUNE_FLOPS", quick)
    # A kernel that must not be asked for is not there.
    monkeypatch.setattr(vendor, "CUDNN" if quick else "FLASH", "no such kernel")
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


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="needs a Hopper GPU"
)
@pytest.mark.parametrize("mask", [None, Causal()], ids=str)
def test_where_our_kernel_is_ahead_it_is_asked_and_played_when_it_comes_again(monkeypatch, mask):
    torch.manual_seed(0)
    from regard.engine.triton.replay import calls

    calls.forget()
    monkeypatch.setattr(support, "FASTER_FROM", 256)
    monkeypatch.setattr(vendor, "AUTOTUNE_FLOPS", 0.0)
    asked = []
    ours = vendor._ours
    monkeypatch.setattr(vendor, "_ours", lambda problem: asked.append(problem) or ours(problem))
    outs, wanted = [], []
    for _ in range(6):
        q, k, v = torch.randn(3, 1, 4, 300, 128, dtype=torch.bfloat16, device="cuda").unbind()
        outs.append(attention(q, k, v, mask))
        wanted.append(attention(q.double(), k.double(), v.double(), mask, backend="torch"))
        torch.testing.assert_close(outs[-1], attention(q, k, v, mask), rtol=0, atol=0)
    # Once as it is, once or twice more to be recorded, and no more.
    assert len(asked) <= 4
    for out, exact in zip(outs, wanted, strict=True):
        assert (out.double() - exact).norm() < 0.01 * exact.norm()
