"""Inside `torch.autocast`."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.harness import DTYPES, qkv
from regard import attention, sdpa
from regard.masks import Causal, Window
from regard.scores import Additive

OPTIONS = {
    "plain": {},
    "window": {"mask": Causal() & Window(9)},
    "soft cap": {"softcap": 5.0},
    "sink": {"sink": torch.zeros(4)},
    "dropout": {"dropout": 0.3},
    "bias": {"bias": torch.randn(65, 65, generator=torch.Generator().manual_seed(0))},
    "additive": {"score": Additive(torch.eye(16), torch.eye(16), torch.ones(16))},
}


@pytest.mark.parametrize("lower", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", ["torch", "sdpa", "auto"])
def test_the_output_has_the_dtype_that_pytorchs_attention_gives(lower, dtype, backend):
    leaves = qkv(5, 7, dtype=dtype)
    with torch.autocast("cpu", lower):
        want = scaled_dot_product_attention(*leaves.values())
        assert attention(**leaves, backend=backend).dtype == want.dtype
        assert sdpa(*leaves.values()).dtype == want.dtype
    torch.testing.assert_close(attention(**leaves).to(want.dtype), want, rtol=0.05, atol=0.05)


def test_dtypes_that_autocast_makes_equal_may_be_mixed():
    q, k, v = torch.randn(3, 1, 2, 65, 16).unbind()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = attention(q, k.half(), v.bfloat16())
    assert mixed.dtype == torch.bfloat16


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_sums_are_not_lowered_in_either_direction(name, backend):
    """Autocast casts the inputs, and then nothing: the bits are those of inputs cast by hand."""

    def run(backward_too):
        own = {key: x.bfloat16().requires_grad_() for key, x in leaves.items()}
        torch.manual_seed(0)
        out = attention(**own, backend=backend, **OPTIONS[name])
        with torch.autocast("cpu", torch.bfloat16, enabled=backward_too):
            return [out, *torch.autograd.grad(out.float().square().sum(), list(own.values()))]

    leaves = qkv(65, 65)
    want = run(backward_too=False)
    with torch.autocast("cpu", torch.bfloat16):
        got = run(backward_too=True)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_gradients_come_back_in_the_dtype_of_the_inputs():
    leaves = {name: x.requires_grad_() for name, x in qkv(65, 65).items()}
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(**leaves, mask=Window(5))
    out.float().sum().backward()
    assert all(x.grad is not None and x.grad.dtype == torch.float32 for x in leaves.values())
