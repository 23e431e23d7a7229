"""Gradients held to eager's own error in the same dtype, where sums are long or differences small."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard import Causal, Entropy, Window, attention, observe
from regard.engine.few_rows import FEW
from regard.masks import Padding
from regard.scores import Additive, ALiBi, RelativeBias
from regard.stats import ValueWeighted


def with_outliers(*shape: int, seed: int) -> torch.Tensor:
    """Normal numbers, of which 0.2 % are 40 times as large."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=random)
    x[torch.rand(shape, generator=random) < 0.002] *= 40
    return x.bfloat16()


def eager(q, k, v):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.softmax(-1) @ v


def gradients(function, inputs, d_out, dtype):
    leaves = [x.to(dtype).detach().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves), leaves, d_out.to(dtype))


@pytest.mark.parametrize("backend", ["auto", "sdpa", "torch"])
@pytest.mark.parametrize("queries", [1, 3, 8])
def test_few_rows_with_outliers_stay_within_three_times_eagers_error(backend, queries):
    for seed in (5, 59, 83, 94):
        q, d_out = (with_outliers(1, 1, queries, 64, seed=seed + n) for n in (0, 1000))
        k, v = (with_outliers(1, 1, 77, 64, seed=seed + n) for n in (2000, 3000))
        exact = gradients(eager, (q, k, v), d_out, torch.float64)
        theirs = gradients(eager, (q, k, v), d_out, torch.bfloat16)
        ours = gradients(lambda *x: attention(*x, backend=backend), (q, k, v), d_out, torch.bfloat16)
        for mine, other, true in zip(ours, theirs, exact, strict=True):
            assert (mine - true).abs().max() <= 3 * (other - true).abs().max() + 1e-5


def test_many_rows_keep_the_fused_backward():
    q, k, v = torch.randn(3, 1, 1, FEW + 1, 8).unbind()
    own, pytorchs = (q.clone().requires_grad_() for _ in range(2))
    attention(own, k, v).sum().backward()
    F.scaled_dot_product_attention(pytorchs, k, v).sum().backward()
    assert own.grad is not None
    assert pytorchs.grad is not None
    assert torch.equal(own.grad, pytorchs.grad)


def causal(q, k, v):
    """Eager code with two query heads for each head of keys."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    blocked = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(blocked, -torch.inf).softmax(-1) @ v


@pytest.mark.share(4)
@pytest.mark.parametrize("mask", [Causal(), Causal() & Window(65)], ids=str)
@pytest.mark.parametrize("backend", ["auto", "sdpa", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1, 20, 1000])
def test_gradients_at_any_score_stay_within_twice_eagers_error(size, dtype, backend, mask):
    """Scores of up to 3,000: the log-sum-exp in float32 is off by 1e-4."""
    random = torch.Generator().manual_seed(size)
    q, d_out = (torch.randn(2, 4, 65, 16, generator=random) for _ in range(2))
    k, v = (torch.randn(2, 2, 65, 16, generator=random) for _ in range(2))
    # One batch row stays small, and in the other each head of keys is as it is.
    q[1] *= size
    inputs, d_out = [x.to(dtype) for x in (q, k, v)], d_out.to(dtype)
    exact = gradients(causal, inputs, d_out, torch.float64)
    theirs = gradients(causal, inputs, d_out, dtype)
    ours = gradients(lambda *x: attention(*x, mask, backend=backend), inputs, d_out, dtype)
    for mine, other, true in zip(ours, theirs, exact, strict=True):
        # In float32 each of the 65 terms of a sum is rounded by its own size.
        floor = 2e-5 if dtype == torch.float32 else 1e-5
        assert (mine - true).abs().max() <= 2 * (other - true).abs().max() + floor


@pytest.mark.parametrize("backend", ["sdpa", "torch"])
def test_large_scores_of_other_heads_leave_the_bits_of_a_gradient(backend):
    random = torch.Generator().manual_seed(1)
    q, k, v, d_out = torch.randn(4, 2, 2, 33, 16, generator=random).unbind()

    def gradient(factor):
        x = q.clone()
        x[1, 0] *= factor
        x.requires_grad_()
        return torch.autograd.grad(attention(x, k, v, Causal(), backend=backend), x, d_out)[0]

    calm, wild = gradient(1.0), gradient(1000.0)
    assert torch.equal(calm[0], wild[0])
    assert torch.equal(calm[1, 1], wild[1, 1])
    assert not torch.equal(calm[1, 0], wild[1, 0])


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_everything_that_learns_is_as_exact_beside_large_scores(backend):
    random = torch.Generator().manual_seed(2)
    q, k, v, d_out = torch.randn(4, 2, 2, 33, 16, generator=random, dtype=torch.float64).unbind()
    q[1] *= 300
    slopes, sink = torch.rand(2, generator=random).double(), torch.randn(2, generator=random).double()

    def found(dtype):
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v, slopes, sink)]
        bias, sinks = ALiBi(leaves[3]), leaves[4]
        seen = observe(
            *leaves[:3], Causal(), bias=bias, sink=sinks, stats=[Entropy(), ValueWeighted()],
            differentiable=True, backend=backend,
        )  # fmt: skip
        up = d_out.to(dtype)
        loss = (seen.out * up).sum() + (seen.entropy * up[..., 0]).sum()
        loss = loss + (seen.value_weighted * up[..., 1]).sum() + (seen.lse * up[..., 2]).sum()
        return torch.autograd.grad(loss, leaves)

    for mine, true in zip(found(torch.float32), found(torch.float64), strict=True):
        assert (mine - true).abs().max() <= 1e-5 * true.abs().max() + 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_lse_of_half_precision_is_exact(dtype):
    q, k, v = torch.randn(3, 1, 2, 65, 32, generator=torch.Generator().manual_seed(3)).to(dtype).unbind()
    seen = observe(q, k, v, Causal(), stats=[Entropy()], backend="sdpa")
    scores = q.double() @ k.double().mT * 32**-0.5
    exact = scores.masked_fill(torch.ones(65, 65, dtype=torch.bool).triu(1), -torch.inf).logsumexp(-1)
    assert seen.out.dtype == dtype
    # PyTorch's kernel for half precision is off by 6e-5.
    assert (seen.lse - exact).abs().max() < 3e-6


@pytest.mark.parametrize("kind", ["ALiBi", "RelativeBias"])
def test_a_structured_bias_learns_as_exactly_as_in_eager(kind):
    torch.manual_seed(3)
    n, heads = 1100, 3
    q, k, v, d_out = torch.randn(4, 1, heads, n, 16).unbind()
    weights = torch.rand(heads) if kind == "ALiBi" else torch.randn(heads, 32)

    def bias_of(x):
        return ALiBi(x) if kind == "ALiBi" else RelativeBias(x)

    def dense(x, dtype):
        places = torch.arange(n)
        table = bias_of(x).tile(places, places).to(dtype)
        scores = q.to(dtype) @ k.to(dtype).transpose(-1, -2) / 4 + table
        return scores.softmax(-1) @ v.to(dtype)

    def gradient(function, dtype):
        x = weights.to(dtype).requires_grad_()
        return torch.autograd.grad(function(x), x, d_out.to(dtype))[0]

    exact = gradient(lambda x: dense(x, torch.float64), torch.float64)
    theirs = gradient(lambda x: dense(x, torch.float32), torch.float32)
    ours = gradient(lambda x: attention(q, k, v, bias=bias_of(x)), torch.float32)
    assert (ours - exact).norm() <= 2 * (theirs - exact).norm()


@pytest.mark.parametrize("height", [0.0, 10.0, 14.0])
def test_a_sink_that_takes_nearly_all_leaves_gradients_exact_where_a_bias_learns(height):
    torch.manual_seed(0)
    n, heads = 201, 4
    q, k, v, d_out = torch.randn(4, 1, heads, n, 16).unbind()
    leaves = (q, k, v, torch.rand(heads))
    places = torch.arange(n)

    def eager(q, k, v, slopes):
        scores = q @ k.mT / 4 + ALiBi(slopes).tile(places, places).to(q.dtype)
        sink = torch.full((1, heads, n, 1), height, dtype=q.dtype)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1] @ v

    def ours(q, k, v, slopes):
        return attention(q, k, v, bias=ALiBi(slopes), sink=torch.full((heads,), height))

    exact = gradients(eager, leaves, d_out, torch.float64)
    theirs, found = (gradients(call, leaves, d_out, torch.float32) for call in (eager, ours))
    for wanted, their, our in zip(exact, theirs, found, strict=True):
        # Eager code may happen to round each of four slopes to the nearest float32: allow two roundings more.
        floor = torch.finfo(torch.float32).eps * wanted.norm()
        assert (our - wanted).norm() <= 2 * (their - wanted).norm() + floor


def test_an_infinite_prepared_query_has_the_gradient_that_its_output_has():
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 1, n, 4).half() for n in (5, 7, 7))
    w_q, w_k, vector = torch.randn(4, 6).half(), torch.randn(4, 6).half(), torch.randn(6).half()
    w_q[0, 0] = 60000.0
    q[0, 0, 2, 0] = 9.0  # 9 * 60000 overflows float16: tanh of it is 1 and its derivative 0
    score = Additive(w_q, w_k, vector)
    assert score.prepare(q, k)[0].isinf().any()
    mask = Padding(torch.tensor([[True] * 6 + [False]]))

    def ours(k, v):
        return attention(q, k, v, mask=mask, score=score, scale=1.0)

    def theirs(k, v):
        hidden = torch.tanh((q @ w_q)[..., :, None, :].to(k) + (k @ w_k.to(k))[..., None, :, :])
        scores = (hidden @ vector.to(k))[..., :6]
        return scores.softmax(-1) @ v[..., :6, :]

    d_out = torch.randn(1, 1, 5, 4)
    exact = gradients(theirs, (k, v), d_out, torch.float64)
    found = gradients(ours, (k, v), d_out, torch.float16)
    for mine, true in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.double(), true, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("backend", ["sdpa", "torch"])
@pytest.mark.parametrize("mask", [None, Causal()])
def test_a_sink_in_half_precision_is_rounded_once(backend, mask):
    q, k, v = torch.randn(3, 1, 4, 65, 16).bfloat16().unbind()
    sink = torch.randn(4)
    wide = attention(q.float(), k.float(), v.float(), mask=mask, sink=sink, backend="torch")
    half = attention(q, k, v, mask=mask, sink=sink, backend=backend)
    # The nearest bfloat16 to the float32 result, but for sums in float32 that fall on a boundary.
    assert (half != wide.bfloat16()).float().mean() < 0.005


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
def test_the_reference_takes_no_gradient_from_a_rounded_output(compiles, dtype):
    # Two keys a row, one with nearly all the weight: what is left of a gradient is a small difference.
    random = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 2, 65, 2, generator=random).mul_(2).to(dtype) for _ in range(3)]
    d_out, mask = torch.randn(1, 2, 65, 2, generator=random).to(dtype), Causal() & Window(2)

    def ours(q, k, v):
        return attention(q, k, v, mask, softcap=20.0, backend="torch")

    exact = gradients(ours, inputs, d_out, torch.float64)
    function = torch.compile(ours, fullgraph=True, backend="aot_eager") if compiles else ours
    for found, wanted in zip(gradients(function, inputs, d_out, dtype), exact, strict=True):
        # Rounded once, when it is written.
        torch.testing.assert_close(found.double(), wanted, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", [None, Causal() & Window(9)], ids=["no mask", "window"])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_the_gradient_of_a_sink_is_not_rounded_with_the_output(backend, mask, dtype):
    random = torch.Generator().manual_seed(4)
    q, k, v, d_out = (torch.randn(2, 2, 65, 16, generator=random).to(dtype) for _ in range(4))
    sink = torch.randn(2, generator=random)

    def gradient(*inputs):
        own = sink.to(inputs[0].dtype if inputs[0].dtype == torch.float64 else sink.dtype).requires_grad_()
        out = attention(*inputs, mask, sink=own, backend=backend)
        return torch.autograd.grad(out, own, d_out.to(out.dtype))[0]

    exact = gradient(*(x.double() for x in (q, k, v)))
    torch.testing.assert_close(gradient(q, k, v), exact.float(), atol=3e-5, rtol=0)


@pytest.mark.parametrize("heads", [2, 1])
def test_value_weighted_gives_values_a_gradient(heads):
    q, (k, v) = (
        torch.randn(2, 2, 9, 4, dtype=torch.float64),
        torch.randn(2, 2, heads, 9, 4, dtype=torch.float64),
    )
    up = torch.randn(2, 2, 9, dtype=torch.float64)

    def ours(q, k, v):
        return observe(q, k, v, stats=[ValueWeighted()], mask=Causal(), differentiable=True).value_weighted

    def theirs(q, k, v):
        k, v = (x.repeat_interleave(2 // heads, 1) for x in (k, v))
        scores = (q @ k.transpose(-1, -2) / 2).masked_fill(~Causal().dense(9), -torch.inf)
        return (scores.softmax(-1) @ v.norm(dim=-1, keepdim=True))[..., 0]

    for mine, true in zip(
        gradients(ours, (q, k, v), up, torch.float64),
        gradients(theirs, (q, k, v), up, torch.float64),
        strict=True,
    ):
        torch.testing.assert_close(mine, true)


def test_garbage_values_behind_the_mask_give_value_weighted_no_nan_gradient():
    q, k, v = torch.randn(3, 1, 1, 5, 4).unbind()
    v = v.clone()
    v[..., 4, :] = torch.inf
    v.requires_grad_()
    mask = Padding(torch.tensor([[True] * 4 + [False]]))
    seen = observe(q, k, v, stats=[ValueWeighted()], mask=mask, differentiable=True)
    seen.value_weighted.sum().backward()
    assert v.grad is not None
    assert v.grad.isfinite().all()
    assert not v.grad[..., 4, :].any()
