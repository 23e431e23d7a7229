"""Scores and values so large that a careless sum would overflow."""

from __future__ import annotations

import contextlib

import pytest
import torch

from engine.harness import judge_call, on_both_backends, qkv
from oracle import assert_as_good_as_eager, dense_attention, dense_mask
from regard import attention
from regard.engine.torch_backend import forward as torch_forward
from regard.errors import BackendError
from regard.masks import Causal, Window

KEYS = 2100


def with_scores(scores, rows=3):
    """Queries and keys in one head whose scores are the given ones in every row, and random values."""
    k = scores.view(1, 1, -1, 1)
    return {"q": torch.ones(1, 1, rows, 1), "k": k, "v": torch.randn(k.shape)}


def steps(*levels):
    """Scores that stay on each level for about as long as a tile."""
    return torch.cat([torch.full((KEYS // len(levels) + 1,), float(level)) for level in levels])[:KEYS]


LEVELS = [(-300, 300), (300, -300), (-300, 300, -300), (0, 80, 160, 240)]


def judge_output(leaves, mask, backend, **options):
    """The output alone: a weight recomputed for the gradient is as exact as float32 holds lse, here 300."""
    allowed = dense_mask(mask, leaves["q"], leaves["k"])
    eager = dense_attention(**leaves, allowed=allowed, **options).out
    exact = dense_attention(**leaves, allowed=allowed, dtype=torch.float64, **options).out
    assert_as_good_as_eager(attention(**leaves, mask=mask, backend=backend, **options), eager, exact)


@pytest.mark.parametrize("levels", LEVELS, ids=str)
@pytest.mark.parametrize("mask", [None, Causal(), Window(2000, 1500)], ids=str)
@on_both_backends
def test_scores_may_rise_and_fall_by_hundreds(levels, mask, backend):
    leaves = with_scores(steps(*levels))
    judge_output(leaves, mask, backend, scale=1.0)
    judge_call({name: x.double() for name, x in leaves.items()}, mask, backend, scale=1.0)


@pytest.mark.parametrize("levels", [(0, 1e4), (-1e4,), (1e4,), (1e4, -1e4)], ids=str)
@pytest.mark.parametrize("mask", [None, Causal(), Window(2000, 1500)], ids=str)
def test_scores_may_rise_and_fall_by_thousands(levels, mask):
    judge_output(with_scores(steps(*levels)), mask, "torch", scale=1.0)


@on_both_backends
def test_one_extreme_row_leaves_its_neighbours_alone(backend):
    leaves = qkv(65, KEYS, batch=1, heads=2)
    leaves["q"][0, 1, 40] *= 1000
    judge_output(leaves, None, backend)
    judge_call({name: x.double() for name, x in leaves.items()}, None, backend)


@pytest.mark.parametrize("large", [0.0, torch.inf], ids=["always", "never"])
@pytest.mark.parametrize("mask", [None, Causal() & Window(1500), Window(7)], ids=str)
def test_streaming_again_carefully_changes_nothing_that_was_right(mask, large, monkeypatch):
    monkeypatch.setattr(torch_forward, "LARGE", large)
    judge_call(qkv(65, KEYS, batch=1, heads=2), mask, "torch")


def test_a_row_that_overflowed_is_streamed_again(monkeypatch):
    ways = []
    stream = torch_forward._Stream._stream

    def noted(self, row, careful):
        ways.append(careful)
        stream(self, row, careful)

    monkeypatch.setattr(torch_forward._Stream, "_stream", noted)
    attention(**with_scores(steps(0, 1)), scale=1.0, backend="torch")
    assert ways == [False]
    attention(**with_scores(steps(-300, 300)), scale=1.0, backend="torch")
    assert ways == [False, False, True]


@on_both_backends
def test_large_values_do_not_overflow_before_they_are_averaged(backend):
    """exp(65) is not large and 1e12 is not large, but their product is."""
    leaves = with_scores(steps(0, 65))
    leaves["v"] = torch.full_like(leaves["v"], 1e12)
    out = attention(**leaves, scale=1.0, backend=backend)
    eager = dense_attention(**leaves, scale=1.0).out
    # In units of 1e12, or the rule's 1e-5 would be nothing. A thousand equal numbers added one by one, as
    # products on ARM add them, drift by more than the 1.3e-6 that floats are usually compared with.
    assert_as_good_as_eager(out / 1e12, eager / 1e12, torch.ones_like(out, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@on_both_backends
def test_half_precision_scores_may_pass_the_largest_half(dtype, backend):
    """65504 is the largest float16: eager attention gives NaN here."""
    leaves = {name: x.to(dtype) for name, x in qkv(65, 63, dim=64).items()}
    leaves["q"], leaves["k"] = 200 * leaves["q"], 200 * leaves["k"]
    exact = dense_attention(**leaves, scale=1.0, dtype=torch.float64)
    assert exact.scores.abs().max() > 65504
    out = attention(**leaves, scale=1.0, backend=backend)
    torch.testing.assert_close(out.double(), exact.out, rtol=0, atol=0.02)


@pytest.mark.parametrize("keys", [3, 19, 65])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_score_of_infinity_gives_what_eager_attention_gives(dtype, keys):
    q = torch.ones(1, 1, 1, 1, dtype=dtype)
    k = torch.ones(1, 1, keys, 1, dtype=dtype)
    k[:, :, 1] = torch.inf
    for backend in ("auto", "sdpa", "torch"):
        with contextlib.suppress(BackendError):  # PyTorch's kernels would be wrong about a few keys
            assert attention(q, k, torch.ones_like(k), backend=backend).isnan().all()
            minus = attention(q, -k, torch.ones_like(k), backend=backend)
            torch.testing.assert_close(minus, torch.ones_like(q))
