"""Everything that makes a score: scale, bias, soft cap, sink, score_mod and the score function itself."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from engine.harness import in_every_dtype, judge, judge_call, on_both_backends, qkv
from oracle import dense_attention, dense_mask
from regard import attention
from regard.masks import Causal, Dense, Documents, Window
from regard.scores import Additive, ALiBi, Bias, Concat, General, RelativeBias, Score

MASK = Causal() & Window(20)


def judge_masked(leaves, ours, dense, mask=MASK, backend="auto"):
    """Judge a call whose options are made from its leaves."""
    allowed = dense_mask(mask, leaves["q"], leaves["k"])

    def split(x):
        return {name: x[name] for name in "qkv"}, {name: y for name, y in x.items() if name not in "qkv"}

    def call(x):
        tensors, learned = split(x)
        return attention(**tensors, mask=mask, backend=backend, **ours(learned))

    def oracle(x):
        tensors, learned = split(x)
        return dense_attention(**tensors, allowed=allowed, **dense(learned)).out

    judge(call, oracle, leaves)


@pytest.mark.share(3)
@pytest.mark.parametrize("scale", [0.0, 1.0, -0.3, 2, torch.tensor(0.5)], ids=str)
@pytest.mark.parametrize("mask", [None, Causal(), MASK], ids=str)
@on_both_backends
def test_any_finite_scale_agrees_with_the_oracle(scale, mask, backend):
    """PyTorch's causal kernel gives NaN for a scale of 0 or less: it must not be asked."""
    judge_call(qkv(65, 65, kv_heads=2), mask, backend, scale=scale)


@in_every_dtype
@pytest.mark.parametrize("softcap", [0.5, 30])
def test_a_soft_cap_agrees_with_the_oracle(softcap, dtype):
    judge_call(qkv(63, 65, kv_heads=2, dtype=dtype), MASK, softcap=softcap)


@pytest.mark.share(3)
@in_every_dtype
@on_both_backends
@pytest.mark.parametrize("mask", [None, Causal(), MASK, Documents(ids=torch.arange(65) // 9 - 1)], ids=str)
def test_a_sink_agrees_with_the_oracle(mask, backend, dtype):
    leaves = {**qkv(63, 65, kv_heads=2, dtype=dtype), "sink": torch.tensor([0.0, 3.0, -5.0, 1.0])}
    same = lambda x: {"sink": x["sink"]}  # noqa: E731
    judge_masked(leaves, same, same, mask, backend)


@on_both_backends
def test_a_sink_of_minus_infinity_is_no_sink(backend):
    leaves, mask = qkv(33, 33), Documents(ids=torch.arange(33) // 9 - 1)
    sink = torch.full((4,), -torch.inf)
    out = attention(**leaves, mask=mask, sink=sink, backend=backend)
    torch.testing.assert_close(out, attention(**leaves, mask=mask, backend=backend))


@on_both_backends
def test_a_sink_takes_weight_and_gives_nothing(backend):
    q = torch.zeros(1, 1, 1, 4)
    out = attention(q, q.expand(1, 1, 3, 4), torch.ones(1, 1, 3, 4), sink=torch.zeros(1), backend=backend)
    torch.testing.assert_close(out, torch.full((1, 1, 1, 4), 0.75))


BROADCASTS = list(product((2, 1), (4, 1), (63, 1), (65, 1)))
SHAPES = [*BROADCASTS, (63, 65), (1, 65), (65,), (), (4, 63, 65), (4, 1, 1)]


@pytest.mark.share(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mask", [None, MASK], ids=str)
def test_a_bias_of_any_shape_that_broadcasts_learns(shape, mask):
    leaves = {**qkv(63, 65, kv_heads=2), "bias": torch.randn(shape)}
    same = lambda x: {"bias": x["bias"]}  # noqa: E731
    judge_masked(leaves, same, same, mask)


@pytest.mark.share(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mask", [None, MASK], ids=str)
@on_both_backends
def test_a_constant_bias_of_any_shape_agrees_with_the_oracle(shape, mask, backend):
    judge_call(qkv(63, 65, kv_heads=2), mask, backend, bias=torch.randn(shape))


@in_every_dtype
@on_both_backends
def test_a_bias_keeps_its_digits_whatever_the_dtype_of_the_queries(dtype, backend):
    """A bias in float32 is not rounded to half precision: 300 and 301 stay apart."""
    q = torch.zeros(1, 1, 1, 8, dtype=dtype)
    v = torch.eye(8, dtype=dtype)[None, None]
    bias = 300 + torch.arange(8.0)
    out = attention(q, v, v, bias=bias, backend=backend)
    torch.testing.assert_close(out[0, 0, 0].float(), bias.softmax(0), rtol=0, atol=2e-3)


def test_a_bias_crosses_tiles():
    leaves = {**qkv(520, 1030, batch=1, heads=1, dim=8), "bias": torch.randn(520, 1030)}
    same = lambda x: {"bias": x["bias"]}  # noqa: E731
    judge_masked(leaves, same, same, Causal())


@in_every_dtype
def test_alibi_agrees_with_the_oracle_and_its_slopes_learn(dtype):
    # In float64 across tiles as well; sums that long say nothing about the error in float32.
    q, k = (520, 1030) if dtype == torch.float64 else (63, 65)
    distance = (torch.arange(k - q, k)[:, None] - torch.arange(k)).abs()
    slopes = torch.tensor([0.5, 0.01], dtype=torch.promote_types(dtype, torch.float32))
    leaves = {**qkv(q, k, batch=1, heads=2, dtype=dtype), "slopes": slopes}
    judge_masked(
        leaves,
        lambda x: {"bias": ALiBi(x["slopes"])},
        lambda x: {"bias": -x["slopes"][:, None, None] * distance},
    )


@pytest.mark.parametrize("lengths", [(63, 65), (520, 1030)])
def test_a_relative_bias_agrees_with_the_oracle_and_its_table_learns(lengths):
    q, k = lengths
    positions = torch.arange(k - q, k), torch.arange(k)
    leaves = {**qkv(q, k, batch=2, heads=2, kv_heads=1), "table": torch.randn(2, 32)}
    judge_masked(
        leaves,
        lambda x: {"bias": RelativeBias(x["table"])},
        lambda x: {"bias": RelativeBias(x["table"]).tile(*positions)},
    )


def test_a_bias_of_your_own_may_forget_the_heads():
    class Nearness(Bias):
        def tile(self, q_pos, k_pos):
            return 1.0 / (1 + (q_pos[:, None] - k_pos).abs())

    leaves = qkv(63, 65, kv_heads=2)
    dense = Nearness().tile(torch.arange(2, 65), torch.arange(65))
    judge_masked(leaves, lambda _: {"bias": Nearness()}, lambda _: {"bias": dense})


SCORE_MODS = {
    "by distance": lambda s, b, h, i, j: s - 0.1 * (i - j).abs(),
    "by head": lambda s, b, h, i, j: s * (1 + h),
    "by batch row": lambda s, b, h, i, j: torch.where(b == 1, s, -s),
    "with minus infinity": lambda s, b, h, i, j: torch.where((i - j) % 3 == 0, s, -torch.inf),
    "with a curve": lambda s, b, h, i, j: torch.tanh(s) * 2,
    "with a constant": lambda s, b, h, i, j: (0.01 * (i - j)).expand_as(s).to(s.dtype),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", SCORE_MODS)
@pytest.mark.parametrize("mask", [None, MASK], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_score_mod_agrees_with_the_oracle(name, mask, dtype):
    judge_call(qkv(63, 65, kv_heads=2, dtype=dtype), mask, score_mod=SCORE_MODS[name])


def test_a_bias_of_minus_infinity_survives_the_soft_cap():
    leaves = qkv(63, 65, kv_heads=2)
    allowed = torch.rand(63, 65) < 0.5
    allowed[7] = False
    bias = torch.zeros(63, 65).masked_fill(~allowed, -torch.inf)
    dense = dense_mask(Dense(allowed), leaves["q"], leaves["k"])
    judge(
        lambda x: attention(**x, bias=bias, softcap=3.0),
        lambda x: dense_attention(**x, allowed=dense, softcap=3.0).out,
        leaves,
    )
    assert torch.equal(attention(**leaves, bias=bias, softcap=3.0)[:, :, 7], torch.zeros(2, 4, 16))


def test_bias_then_soft_cap_then_score_mod_then_mask_then_sink():
    leaves = {**qkv(63, 65, kv_heads=2), "bias": torch.randn(4, 63, 65), "sink": torch.randn(4)}
    fixed = {"scale": 0.7, "softcap": 2.0, "score_mod": SCORE_MODS["by distance"]}
    judge_masked(leaves, lambda x: {**x, **fixed}, lambda x: {**x, **fixed})


def additive(q, k, x):
    return torch.tanh((q @ x["w_q"])[..., :, None, :] + (k @ x["w_k"])[..., None, :, :]) @ x["w"]


@pytest.mark.parametrize("lengths", [(33, 65), (513, 300)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_an_additive_score_agrees_with_the_oracle(lengths, dtype):
    weights = {"w_q": torch.randn(16, 6), "w_k": torch.randn(16, 6), "w": torch.randn(6)}
    leaves = {**qkv(*lengths, batch=1, heads=2, dtype=dtype), **{n: w.to(dtype) for n, w in weights.items()}}
    judge_masked(
        leaves,
        lambda x: {"score": Additive(x["w_q"], x["w_k"], x["w"])},
        lambda x: {"scores": lambda q, k: additive(q, k, x)},
    )


def test_a_concat_score_is_an_additive_one_in_one_matrix():
    leaves = {**qkv(33, 65, kv_heads=2), "weight": torch.randn(32, 6), "w": torch.randn(6)}
    judge_masked(
        leaves,
        lambda x: {"score": Concat(x["weight"], x["w"])},
        lambda x: {
            "scores": lambda q, k: additive(
                q, k, {"w_q": x["weight"][:16], "w_k": x["weight"][16:], "w": x["w"]}
            )
        },
    )


@pytest.mark.share(3)
@pytest.mark.parametrize("shape", [(16, 16), (4, 16, 16)])
@pytest.mark.parametrize("mask", [None, MASK], ids=str)
@on_both_backends
def test_a_general_score_agrees_with_the_oracle(shape, mask, backend):
    leaves = {**qkv(33, 65, kv_heads=2), "weight": torch.randn(shape) / 4}
    judge_masked(
        leaves,
        lambda x: {"score": General(x["weight"])},
        lambda x: {"scores": lambda q, k: q @ x["weight"] @ k.mT},
        mask,
        backend,
    )


def test_a_score_of_your_own_may_return_a_view():
    class Turned(Score):
        def tile(self, q, k, *parameters):
            return (k @ q.mT).mT

    judge_masked(
        qkv(33, 65, kv_heads=2),
        lambda _: {"score": Turned()},
        lambda _: {"scores": lambda q, k: q @ k.mT},
    )


def test_a_scaled_score_of_your_own_is_scaled_once():
    class Distance(Score):
        def tile(self, q, k, *parameters):
            return -((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(-1)

    judge_masked(
        qkv(33, 65),
        lambda _: {"score": Distance(), "scale": 0.1},
        lambda _: {"scores": Distance().tile, "scale": 0.1},
    )
