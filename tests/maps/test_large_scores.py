"""Weights stay as exact as eager attention's however large the scores are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oracle import dense_attention, dense_mask
from regard import AttentionMap, Causal, Pooled, TopK, observe
from regard.engine import large_rows
from regard.masks import Documents, Padding, Window
from regard.stats import ColumnMass, Decay, Entropy, HeadDivergence, Histogram, MaxScore

Q, K, HEADS, SIZE = 63, 130, 4, 8
LOGITS = [10.0, 100.0, 1_500.0, 62_500.0, 1e6]
SIGNED = [sign * logit for logit in LOGITS for sign in (1, -1)]
MASKS = {
    "no mask": lambda: None,
    "causal": lambda: Causal(),
    "window": lambda: Causal() & Window(30),
    "dead rows": lambda: Causal(shift=-80),
    "padding": lambda: Padding(torch.arange(K) % 3 > 0),
}
signed = pytest.mark.parametrize("logit", SIGNED, ids=lambda x: f"{x:g}")
masked = pytest.mark.parametrize("mask", [make() for make in MASKS.values()], ids=list(MASKS))
# A backend of its own sees every size of scores once, with alternating signs.
CASES = [("auto", logit) for logit in SIGNED]
CASES += [("torch", SIGNED[2 * i + i % 2]) for i in range(len(LOGITS))]
CASES += [("sdpa", SIGNED[2 * i + 1 - i % 2]) for i in range(len(LOGITS))]
on_every_backend = pytest.mark.parametrize(("backend", "logit"), CASES)


def steps(logit: float, dtype: torch.dtype, kv_heads: int = 2, equal: bool = False) -> tuple[Tensor, ...]:
    """Queries and keys whose scores are `logit` plus 0, 0.25, … 8, without any rounding; and those steps."""
    torch.manual_seed(1)
    step = torch.randint(0, 1 if equal else 33, (1, kv_heads, K), dtype=dtype) / 4
    q = torch.tensor([logit, 1.0], dtype=dtype).expand(1, HEADS, Q, 2).contiguous()
    k = torch.stack([torch.ones_like(step), step], -1)
    return q, k, step.repeat_interleave(HEADS // kv_heads, 1)[:, :, None].expand(1, HEADS, Q, K).double()


def softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """In float64; rows that see nothing have weight 0."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)


def pooled_max(weights: Tensor) -> Tensor:
    weights = torch.nn.functional.pad(weights, (0, -K % SIZE, 0, -Q % SIZE))
    return weights.unflatten(-1, (-1, SIZE)).unflatten(-3, (-1, SIZE)).amax((-3, -1))


def errors(q: Tensor, k: Tensor, mask, exact: Tensor, backend: str, **options) -> dict[str, float]:
    """How far everything that holds weights is from the exact ones."""
    seen = observe(q, k, k, mask, stats=[TopK(3), Pooled(SIZE, "both")], backend=backend, **options)
    lazy = AttentionMap.of(q, k, mask, **options)
    dense = seen.map.dense()
    tile, at = (0, 1, slice(40, 50), slice(3, 77)), (0, 3, 61)
    for x in (dense, seen.top_k.weight, seen.pooled.max):
        assert float(x.max()) <= 1.0
    found = {
        "dense": (dense, exact),
        "row": (seen.map.row(*at), exact[at]),
        "lazy tile": (lazy[tile], exact[tile]),
        "lazy row": (lazy.row(*at), exact[at]),
        "top keys": (seen.top_k.weight, exact.topk(3).values),
        "pooled max": (seen.pooled.max, pooled_max(exact)),
        "map.pooled": (lazy.pooled(SIZE, "max"), pooled_max(exact)),
    }
    return {name: (got.double() - want).abs().max().item() for name, (got, want) in found.items()}


@pytest.mark.share(4)
@on_every_backend
@masked
@pytest.mark.parametrize("equal", [False, True], ids=["steps", "equal"])
def test_scores_without_rounding_give_weights_without_error(logit, mask, backend, equal):
    """Here eager attention is right to the last bits, so a map must be: its error is that of a float32."""
    q, k, step = steps(logit, torch.float32, equal=equal)
    exact = softmax(step, dense_mask(mask, q, k))
    found = errors(q, k, mask, exact, backend, scale=1.0)
    # As it is kept in float32, a log-sum-exp of up to 64 may be off by half of its last digit, 2e-6.
    limit = 1e-7 if abs(logit) > large_rows.LARGEST[torch.float32] else 2e-6
    assert max(found.values()) <= limit, found


@pytest.mark.share(4)
@masked
@signed
def test_float64_keeps_its_digits_too(logit, mask):
    q, k, step = steps(logit, torch.float64)
    exact = softmax(step, dense_mask(mask, q, k))
    found = errors(q, k, mask, exact, "auto", scale=1.0)
    assert max(found.values()) <= (1e-15 if abs(logit) > large_rows.LARGEST[torch.float64] else 4e-12), found


@pytest.mark.share(4)
@on_every_backend
@masked
def test_random_scores_are_at_most_twice_as_wrong_as_eagers(logit, mask, backend):
    torch.manual_seed(2)
    q, k = torch.randn(1, HEADS, Q, 16), torch.randn(1, 2, K, 16)
    q *= logit / (q @ k.repeat_interleave(2, 1).mT / 4).abs().max()
    allowed = dense_mask(mask, q, k)
    exact = dense_attention(q, k, k, allowed, dtype=torch.float64).weights
    eager = (dense_attention(q, k, k, allowed).weights.double() - exact).abs().max().item()
    found = errors(q, k, mask, exact, backend)
    # The same floor as in `assert_as_good_as_eager`.
    assert max(found.values()) <= 2 * eager + 1e-5, found


@pytest.mark.share(4)
@signed
@pytest.mark.parametrize("kind", ["soft cap", "sink", "bias", "score_mod"])
def test_options_of_scores_are_lifted_too(logit, kind):
    q, k, step = steps(logit, torch.float32)
    scores, options = step, {}
    if kind == "soft cap":
        options = {"softcap": 1e9 * abs(logit)}
    elif kind == "sink":
        options = {"sink": torch.full((HEADS,), logit + 2)}
        scores = torch.cat([step, torch.full_like(step[..., :1], 2)], -1)
    elif kind == "bias":
        options = {"bias": torch.arange(HEADS).view(1, HEADS, 1, 1) * (torch.arange(K) % 3).float()}
        scores = step + options["bias"].double()
    else:
        options = {"score_mod": lambda s, b, h, i, j: s + 0.25 * (j % 3)}
        scores = step + 0.25 * (torch.arange(K) % 3)
    exact = softmax(scores, None)[..., :K]
    found = errors(q, k, None, exact, "auto", scale=1.0, **options)
    assert max(found.values()) <= (1e-6 if abs(logit) > 64 else 4e-6), found


def test_every_statistic_of_large_scores_is_that_of_the_exact_map():
    q, k, step = steps(62_500.0, torch.float32)
    mask = Causal()
    weights = softmax(step, dense_mask(mask, q, k))
    stats = [ColumnMass(), Decay(), Entropy(), HeadDivergence(), Histogram(edges=(0.01,)), MaxScore()]
    seen = observe(q, k, k, mask, stats=stats, scale=1.0)
    torch.testing.assert_close(seen.column_mass.double(), weights.sum(-2), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(seen.column_mass.sum(-1), torch.full((1, HEADS), float(Q)))
    entropy = -(weights * weights.clamp(min=1e-300).log()).sum(-1)
    torch.testing.assert_close(seen.entropy.double(), entropy, atol=1e-5, rtol=1e-5)
    first = weights.diagonal(K - Q, -2, -1).mean(-1)
    torch.testing.assert_close(seen.decay.mean[..., 0].double(), first, atol=1e-7, rtol=1e-5)
    assert torch.equal(seen.histogram.counts[..., 1], (weights >= 0.01).sum((-2, -1)))
    best = step.masked_fill(~mask.dense(Q, K), -torch.inf).amax(-1)
    assert torch.equal(seen.max_score.value.double(), best + 62_500)
    assert bool((seen.head_divergence >= 0).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rows_of_half_precision_sum_to_one(dtype):
    q, k, _ = steps(4096.0, dtype)
    seen = observe(q, k, k, Causal(), scale=1.0, stats=[ColumnMass()])
    torch.testing.assert_close(seen.map.dense().sum(-1), torch.ones(1, HEADS, Q))
    torch.testing.assert_close(seen.column_mass.sum(-1), torch.full((1, HEADS), float(Q)))


def test_rows_that_overflow_stay_what_they_are_beside_large_ones():
    q, k, step = steps(62_500.0, torch.float32)
    q[0, 0, 5] = torch.nan
    with pytest.warns(UserWarning, match="1 of 252 rows have scores that are NaN"):
        seen = observe(q, k, k, scale=1.0, stats=[TopK(1)])
    assert bool(seen.map.row(0, 0, 5).isnan().all())
    exact = softmax(step, None)
    torch.testing.assert_close(seen.map.row(0, 0, 6).double(), exact[0, 0, 6], atol=1e-7, rtol=0)


def test_ordinary_rows_are_read_as_they_always_were(monkeypatch):
    """A cheap look at the largest log-sum-exp decides: nothing is computed in float64 below the limit."""

    def refuse(*_):
        raise AssertionError("read in float64")

    monkeypatch.setattr(large_rows, "lifted", refuse)
    q, k, _ = steps(50.0, torch.float32)
    seen = observe(q, k, k, scale=1.0, stats=[ColumnMass(), TopK(2)])
    assert seen.map.row(0, 0, 3).shape == (K,)
    q, k, _ = steps(70.0, torch.float32)
    with pytest.raises(AssertionError, match="read in float64"):
        observe(q, k, k, scale=1.0, stats=[ColumnMass()])


def test_a_row_that_sees_nothing_stays_empty_beside_large_scores_and_a_sink():
    q, k, v = torch.randn(3, 1, 2, 9, 4).unbind()
    mask = Documents(ids=torch.tensor([0, 0, 0, -1, -1, 1, 1, 1, 1]))
    sink = torch.zeros(2)
    seen = observe(q * 300, k, v, mask=mask, sink=sink, stats=[Pooled(3, "both"), HeadDivergence()])
    assert seen.lse.abs().max() > 64
    assert not seen.map.dense()[:, :, 3:5].any()
    assert seen.pooled.mean.isfinite().all()
    assert seen.head_divergence.isfinite().all()
