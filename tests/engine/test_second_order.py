"""Gradients of gradients are those of the dense formula, on every backend and for every input."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, autograd
from torch.autograd import grad

from oracle import dense_attention
from regard import (
    Causal,
    Dense,
    Documents,
    Entropy,
    Padding,
    Window,
    attention,
    observe,
)
from regard.engine import parts
from regard.errors import ScoreError
from regard.masks import Prefix
from regard.scores import Additive, ALiBi, Bias, Concat, General, RelativeBias
from regard.stats import SegmentMass, SinkMass, ValueWeighted

BLIND = torch.tensor([[True, False, True], [False, False, False], [False, True, True]])
MASKS = {
    "none": None,
    "causal": Causal(),
    "window": Causal() & Window(2),
    "interval": Window(2) | Prefix(1),
    "documents": Documents([1, 2]),
    "padding": Padding(torch.tensor([[True, True, False], [True, False, True]])),
    "blind": Dense(BLIND),
}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_()


def inputs(q: int = 3, k: int = 3, heads: int = 2, kv_heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    return (
        numbers(2, heads, q, 2, seed=1),
        numbers(2, kv_heads, k, 2, seed=2),
        numbers(2, kv_heads, k, 2, seed=3),
    )


def squares(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([x.square().sum() for x in tensors]).sum()


def gradcheck(call, given) -> bool:
    return autograd.gradcheck(call, given, fast_mode=True)


def gradgradcheck(call, given) -> bool:
    return autograd.gradgradcheck(call, given, fast_mode=True)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles so small that three queries and keys are cut into several."""
    monkeypatch.setattr(parts, "ROWS", 2)
    monkeypatch.setattr(parts, "KEYS", 2)


@pytest.mark.share(3)
@pytest.mark.parametrize("backend", ["auto", "torch", "sdpa"])
@pytest.mark.parametrize("mask", MASKS)
def test_masked_attention_has_a_second_derivative(mask, backend):
    assert gradgradcheck(lambda q, k, v: attention(q, k, v, MASKS[mask], backend=backend), inputs())


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("mask", ["interval", "padding"])
def test_blocks_of_queries_add_up_to_the_second_derivative(mask):
    assert gradgradcheck(lambda q, k, v: attention(q, k, v, MASKS[mask], backend="torch"), inputs())


@pytest.mark.parametrize("backend", ["torch", "sdpa"])
@pytest.mark.parametrize("mask", ["none", "interval"])
def test_grouped_heads_and_a_cache_have_a_second_derivative(mask, backend):
    given = inputs(q=2, k=3, heads=4, kv_heads=2)
    assert gradgradcheck(lambda q, k, v: attention(q, k, v, MASKS[mask], backend=backend), given)


OPTIONS = {
    "softcap": {"softcap": 2.0},
    "score_mod": {"score_mod": lambda s, b, h, i, j: s * s + 0.1 * (i - j)},
    "scale": {"scale": -0.7},
}
LEARNED = {
    "dense bias": ((1, 2, 3, 3), lambda x: {"bias": x}),
    "shared bias": ((1, 1, 1, 3), lambda x: {"bias": x}),
    "ALiBi": ((2,), lambda x: {"bias": ALiBi(x)}),
    "RelativeBias": ((2, 4), lambda x: {"bias": RelativeBias(x, max_distance=4)}),
    "sink": ((2,), lambda x: {"sink": x}),
    "General": ((2, 2), lambda x: {"score": General(x)}),
    "Additive": ((5, 3), lambda x: {"score": Additive(x[:2], x[2:4], x[4])}),
    "Concat": ((5, 3), lambda x: {"score": Concat(x[:4], x[4])}),
}


@pytest.mark.share(5)
@pytest.mark.parametrize("mask", ["none", "interval", "blind"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_the_score_have_a_second_derivative(name, mask):
    assert gradgradcheck(lambda q, k, v: attention(q, k, v, MASKS[mask], **OPTIONS[name]), inputs())


@pytest.mark.share(4)
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("mask", ["none", "blind"])
@pytest.mark.parametrize("name", LEARNED)
def test_what_learns_beside_queries_keys_and_values_has_a_second_derivative(name, mask):
    shape, options = LEARNED[name]
    given = (*inputs(), numbers(*shape, seed=4))
    assert gradgradcheck(lambda q, k, v, x: attention(q, k, v, MASKS[mask], **options(x)), given)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    "options", [{}, {"softcap": 3.0}, {"bias": ALiBi(torch.tensor([0.5, 0.1]))}], ids=str
)
def test_dropout_has_the_second_derivative_of_its_own_draw(options):
    def call(q, k, v):
        torch.manual_seed(5)
        return attention(q, k, v, MASKS["interval"], dropout=0.4, **options)

    assert gradgradcheck(call, inputs())


STATISTICS = {
    "entropy": Entropy(),
    "sink mass": SinkMass(1),
    "segment mass": SegmentMass([(0, 1), (1, 3)]),
    "value weighted": ValueWeighted(),
}


@pytest.mark.share(5)
@pytest.mark.parametrize("with_sink", [False, True], ids=["", "sink"])
@pytest.mark.parametrize("mask", ["causal", "blind"])
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_have_a_second_derivative(name, mask, with_sink):
    def call(q, k, v, sink):
        seen = observe(
            q, k, v, MASKS[mask], stats=[STATISTICS[name].named("it")], sink=sink if with_sink else None,
            differentiable=True, backend="torch",
        )  # fmt: skip
        return seen.stats["it"], seen.out

    given = (*inputs(), numbers(2, seed=4))
    assert gradcheck(call, given)
    assert gradgradcheck(call, given)


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_the_log_sum_exp_has_a_second_derivative(backend):
    def call(q, k, v):
        return observe(q, k, v, MASKS["interval"], stats=[], backend=backend).lse

    q, k, v = inputs()
    assert gradgradcheck(lambda q, k: call(q, k, v.detach()), (q, k))


@pytest.mark.parametrize("mask", ["none", "causal", "interval"])
def test_a_gradient_that_is_trained_on_gives_weights_the_dense_gradient(mask):
    """The case that gave 185.0 in the place of 248.1: the upstream gradient is constant."""
    start = numbers(8, 8, seed=5).detach()

    def trained(call) -> Tensor:
        weight, x = start.clone().requires_grad_(), numbers(1, 2, 65, 8, seed=6)
        (dx,) = grad(call(x @ weight, x, x).sum(), x, create_graph=True)
        dx.square().sum().backward()
        assert weight.grad is not None
        return weight.grad

    allowed = None if mask == "none" else MASKS[mask].dense(65)
    wanted = trained(lambda q, k, v: dense_attention(q, k, v, allowed).out)
    for backend in ("torch", "sdpa"):
        got = trained(lambda q, k, v, b=backend: attention(q, k, v, MASKS[mask], backend=b))
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", ["none", "interval"])
def test_second_derivatives_in_lower_precision_are_near(dtype, mask):
    own = [x.detach() for x in inputs(q=33, k=33)]
    allowed = None if mask == "none" else MASKS[mask].dense(33)

    def second(call, dtype) -> list[Tensor]:
        given = [x.to(dtype).requires_grad_() for x in own]
        first = grad(call(*given).square().sum(), given, create_graph=True)
        return list(grad(squares(first), given))

    rounded = [x.to(dtype).double() for x in own]
    own = rounded
    wanted = second(lambda q, k, v: dense_attention(q, k, v, allowed).out, torch.float64)
    eager = second(lambda q, k, v: dense_attention(q, k, v, allowed).out, dtype)
    got = second(lambda q, k, v: attention(q, k, v, MASKS[mask]), dtype)
    for a, b, true in zip(got, eager, wanted, strict=True):
        assert a.dtype == dtype
        bound = 3 * (b.double() - true).abs().max() + torch.finfo(dtype).eps * true.abs().max()
        assert (a.double() - true).abs().max() <= bound


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf])
@pytest.mark.parametrize("sink", [False, True], ids=["", "sink"])
def test_garbage_behind_the_mask_reaches_no_second_derivative(garbage, sink):
    valid = torch.tensor([[True, True, False], [True, False, True]])
    mask = Padding(valid) & (Causal() | Prefix(3))
    taken = torch.zeros(2, dtype=torch.float64) if sink else None

    def second(fill: float) -> list[Tensor]:
        q, k, v = inputs()
        k, v = (x.detach().masked_fill(~valid[:, None, :, None], fill).requires_grad_() for x in (k, v))
        first = grad(attention(q, k, v, mask, sink=taken).square().sum(), (q, k, v), create_graph=True)
        return list(grad(squares(first), (q, k, v)))

    for got, wanted in zip(second(garbage), second(0.0), strict=True):
        torch.testing.assert_close(got, wanted)


def test_a_row_that_does_see_nan_has_a_second_derivative_of_nan_and_others_have_not():
    q, k, v = inputs()
    k = k.detach().index_fill(2, torch.tensor([2]), torch.nan).requires_grad_()
    first = grad(attention(q, k, v, Causal()).square().sum(), q, create_graph=True)[0]
    (second,) = grad(first.square().sum(), q)
    assert second[:, :, 2].isnan().all()
    assert second[:, :, :2].isfinite().all()


def test_a_third_derivative_is_that_of_the_dense_formula():
    def third(call) -> list[Tensor]:
        q, k, v, sink = (*inputs(), numbers(2, seed=4))
        value = call(q, k, v, sink).square().sum()
        for _ in range(2):
            value = squares(grad(value, (q, k, v, sink), create_graph=True))
        return list(grad(value, (q, k, v, sink)))

    mask = MASKS["interval"]
    wanted = third(lambda q, k, v, s: dense_attention(q, k, v, mask.dense(3), sink=s).out)
    got = third(lambda q, k, v, s: attention(q, k, v, mask, sink=s))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


class Constant(Bias):
    """It makes its tiles where autograd does not look."""

    def __init__(self, level: Tensor) -> None:
        self.level = level

    def tile(self, q_pos, k_pos):
        return self.level.detach().view(1, -1, 1, 1).expand(1, -1, len(q_pos), len(k_pos))

    def parameters(self):
        return (self.level,)

    def accumulate(self, grads, ds, q_pos, k_pos):
        grads[0].add_(ds.sum((0, 2, 3)).to(grads[0]))


def test_a_bias_whose_tiles_have_no_graph_has_a_first_derivative_and_says_that_it_has_no_second():
    q, k, v = inputs()
    level = numbers(2, seed=4)
    out = attention(q, k, v, bias=Constant(level))
    first = grad(out.square().sum(), (q, level), create_graph=True)
    said = "Constant.tile returns a tensor without a graph, so its parameters have no gradient of a gradient"
    with pytest.raises(ScoreError, match=re.escape(said)):
        grad(first[0].sum(), q)


def test_the_output_of_a_plain_call_may_be_changed_in_place():
    q, k, v = inputs()
    out = attention(q, k, v)
    out.mul_(2.0)
    assert not out._is_view()
