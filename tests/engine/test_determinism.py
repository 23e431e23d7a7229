"""The same bits again: what docs/determinism.md claims."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.harness import differentiated, in_every_dtype, on_both_backends, qkv, threads
from regard import attention
from regard.masks import Causal, Documents, Prefix, Window
from regard.scores import Additive, ALiBi, RelativeBias

# (batch, heads, kv_heads, q, k, dim): one row, odd sizes, groups, several blocks and tiles, lone products.
SHAPES = [
    (3, 1, 1, 1, 301, 33),
    (3, 4, 1, 1, 301, 64),
    (3, 1, 1, 7, 1000, 64),
    (3, 2, 2, 31, 200, 17),
    (3, 4, 2, 65, 63, 48),
    (2, 1, 1, 513, 1025, 24),
]
MASKS = [None, Causal() & Window(70), Causal() | Prefix(5)]
OPTIONS = {
    "plain": {},
    "soft cap": {"softcap": 3.0},
    "dropout": {"dropout": 0.3},
    "sink": {"sink": torch.tensor([0.5, -1.0])},
    "bias": {"bias": torch.randn(65, 65, generator=torch.Generator().manual_seed(0), requires_grad=True)},
    "ALiBi": {"bias": ALiBi(torch.tensor([0.5, 0.1], requires_grad=True))},
    "relative bias": {"bias": RelativeBias(torch.arange(64.0).view(2, 32) / 64)},
    "additive": {"score": Additive(torch.eye(16), torch.eye(16), torch.ones(16))},
}


def inputs(batch, heads, kv_heads, q, k, dim, dtype=torch.float32):
    torch.manual_seed(0)
    return qkv(q, k, batch=batch, heads=heads, kv_heads=kv_heads, dim=dim, dtype=dtype)


def run(leaves, mask, backend, **options):
    torch.manual_seed(0)
    own = {name: x.detach().requires_grad_() for name, x in leaves.items()}
    out = attention(**own, mask=mask, backend=backend, **options)
    # A gradient whose rows do not depend on who else is in the batch.
    upstream = torch.arange(out.shape[2] * out.shape[3]).view(out.shape[2:]).sin().expand(out.shape)
    return [out.detach(), *torch.autograd.grad(out, list(own.values()), upstream.to(out.dtype))]


def same(some, others):
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 2])
@on_both_backends
def test_a_repeated_call_gives_the_same_bits(shape, count, backend):
    with threads(count):
        for mask in MASKS:
            first, *again = (run(inputs(*shape), mask, backend) for _ in range(3))
            assert all(same(first, other) for other in again)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_repeat_their_bits_for_any_number_of_threads(name):
    leaves = inputs(2, 2, 2, 65, 65, 16)
    first = run(leaves, MASKS[1], "torch", **OPTIONS[name])
    for count in (1, 2, 3):
        with threads(count):
            assert same(first, run(leaves, MASKS[1], "torch", **OPTIONS[name]))


def test_gradients_of_biases_repeat_their_bits_for_any_number_of_threads():
    table = torch.randn(2, 32)

    def call(x):
        return attention(x["q"], x["k"], x["v"], Causal(), bias=RelativeBias(x["table"]), sink=x["sink"])

    leaves = {**inputs(2, 2, 1, 65, 129, 16), "table": table, "sink": torch.zeros(2)}
    first = differentiated(call, leaves)
    for count in (1, 2, 3):
        with threads(count):
            assert same(first.values(), differentiated(call, leaves).values())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@in_every_dtype
def test_the_number_of_threads_does_not_change_a_bit_of_the_torch_backend(shape, dtype):
    leaves = inputs(*shape, dtype=dtype)
    for mask in MASKS:
        results = []
        for count in (1, 2, 3, 8):
            with threads(count):
                results.append(run(leaves, mask, "torch"))
        assert all(same(results[0], other) for other in results[1:])


def part(leaves, rows, heads=slice(None)):
    return {name: x[rows, heads] for name, x in leaves.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@in_every_dtype
def test_who_else_is_in_the_batch_does_not_change_a_bit_of_the_torch_backend(shape, dtype):
    leaves = inputs(*shape, dtype=dtype)
    batch, heads, kv_heads = shape[:3]
    for mask in MASKS:
        together = run(leaves, mask, "torch")
        for rows in (slice(0, 1), slice(batch - 1, batch), slice(1, None)):
            assert same(run(part(leaves, rows), mask, "torch"), [x[rows] for x in together])
        if heads == kv_heads > 1:
            one = slice(1, 2)
            assert same(run(part(leaves, slice(None), one), mask, "torch"), [x[:, one] for x in together])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@in_every_dtype
def test_with_one_thread_the_batch_does_not_change_a_bit_of_the_fused_backend(shape, dtype):
    leaves = inputs(*shape, dtype=dtype)
    for mask in MASKS:
        together = run(leaves, mask, "sdpa")
        for rows in (slice(0, 1), slice(1, None)):
            assert same(run(part(leaves, rows), mask, "sdpa"), [x[rows] for x in together])


def test_ragged_rows_are_what_they_are_alone():
    """Beyond a tile each batch row has a schedule of its own, which is the one it has alone."""
    n = 1100
    ids = torch.arange(n).expand(2, -1) // torch.tensor([[100], [700]])
    leaves = inputs(2, 1, 1, n, n, 8)
    for backend in ("torch", "sdpa"):
        together = run(leaves, Documents(ids=ids), backend)
        for row in range(2):
            rows = slice(row, row + 1)
            alone = run(part(leaves, rows), Documents(ids=ids[row]), backend)
            assert same(alone, [x[rows] for x in together])


SCRIPT = """
import hashlib, torch
from regard import Causal, Window, attention
torch.set_num_threads(1)
torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 3, 65, 17).unbind()
for backend, dropout in (("torch", 0.0), ("sdpa", 0.0), ("torch", 0.5)):
    out = attention(q, k, v, Causal() & Window(9), backend=backend, dropout=dropout)
    print(hashlib.sha256(out.numpy().tobytes()).hexdigest())
"""


def test_another_process_gives_the_same_bits():
    source = Path(__file__).parents[2] / "src"
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONHASHSEED": "7"}
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 65, 17).unbind()
    here = [
        attention(q, k, v, Causal() & Window(9), backend=backend, dropout=dropout)
        for backend, dropout in (("torch", 0.0), ("sdpa", 0.0), ("torch", 0.5))
    ]
    assert there.stdout.split() == [hashlib.sha256(x.numpy().tobytes()).hexdigest() for x in here]
