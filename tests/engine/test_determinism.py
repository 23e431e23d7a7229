"""The same bits again: what docs/determinism.md claims."""

from __future__ import annotations

import pytest
import torch

from engine.harness import differentiated, on_both_backends, qkv, threads, where_products_are_steady
from processes import checkout, python
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
for_any_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
# Half precision is summed in float32: one of the two stands for both.
in_any_sum = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)


def inputs(batch, heads, kv_heads, q, k, dim, dtype=torch.float32):
    if dtype.itemsize == 2:
        # Some processors multiply half precision a hundred times slower. Other dtypes have the full lengths.
        q, k = -(-q // 4), -(-k // 4)
    torch.manual_seed(0)
    return qkv(q, k, batch=batch, heads=heads, kv_heads=kv_heads, dim=dim, dtype=dtype)


def run(leaves, mask, backend, **options):
    """Output and gradients; the gradient sent back is the same for all rows of the batch."""
    torch.manual_seed(0)
    own = {name: x.detach().requires_grad_() for name, x in leaves.items()}
    out = attention(**own, mask=mask, backend=backend, **options)
    upstream = torch.arange(out.shape[2] * out.shape[3]).view(out.shape[2:]).sin().expand(out.shape)
    return [out.detach(), *torch.autograd.grad(out, list(own.values()), upstream.to(out.dtype))]


def same(some, others):
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.share(4)
@for_any_shape
@pytest.mark.parametrize("mask", MASKS, ids=str)
@on_both_backends
def test_a_repeated_call_gives_the_same_bits(shape, mask, backend):
    first, *again = (run(inputs(*shape), mask, backend) for _ in range(3))
    assert all(same(first, other) for other in again)


@for_any_shape
@on_both_backends
def test_a_repeated_call_gives_the_same_bits_for_as_many_threads(shape, backend):
    with threads(2):
        first, again = (run(inputs(*shape), MASKS[1], backend) for _ in range(2))
    assert same(first, again)


@where_products_are_steady
@for_any_shape
@pytest.mark.parametrize("mask", MASKS[:2], ids=str)
def test_the_number_of_threads_does_not_change_a_bit_of_the_torch_backend(shape, mask):
    leaves = inputs(*shape)
    one = run(leaves, mask, "torch")
    for count in (2, 3, 8):
        with threads(count):
            assert same(run(leaves, mask, "torch"), one)


@where_products_are_steady
@in_any_sum
def test_the_number_of_threads_does_not_change_a_bit_of_the_torch_backend_in_any_dtype(dtype):
    leaves = inputs(*SHAPES[3], dtype=dtype)
    one = run(leaves, MASKS[1], "torch")
    with threads(2):
        assert same(run(leaves, MASKS[1], "torch"), one)


OPTIONS = {
    "soft cap": lambda x: {"softcap": 3.0},
    "dropout": lambda x: {"dropout": 0.3},
    "sink": lambda x: {"sink": x["per_head"]},
    "bias": lambda x: {"bias": x["dense"]},
    "bias per head": lambda x: {"bias": x["per_head"][:, None, None]},
}
# The gradients of what these learn are sums over the whole map that PyTorch splits over the threads.
LEARNED = {
    "ALiBi": lambda x: {"bias": ALiBi(x["per_head"])},
    "relative bias": lambda x: {"bias": RelativeBias(x["table"])},
    "additive": lambda x: {"score": Additive(torch.eye(16), torch.eye(16), x["table"][0, :16])},
}


def with_options(make, q=300, k=1100):
    leaves = {**inputs(1, 2, 2, q, k, 16), "per_head": torch.randn(2)}
    leaves |= {"dense": torch.randn(q, k), "table": torch.randn(2, 32)}

    def call(x):
        torch.manual_seed(0)
        return attention(x["q"], x["k"], x["v"], Causal(), backend="torch", **make(x))

    return differentiated(call, leaves).values()


@where_products_are_steady
@pytest.mark.parametrize("name", OPTIONS)
def test_the_number_of_threads_does_not_change_a_bit_under_any_option(name):
    one = with_options(OPTIONS[name])
    with threads(3):
        assert same(with_options(OPTIONS[name]), one)


@pytest.mark.parametrize("name", LEARNED)
def test_learned_biases_and_scores_repeat_their_bits_for_as_many_threads(name):
    with threads(2):
        first, again = (with_options(LEARNED[name], 65, 129) for _ in range(2))
    assert same(first, again)


def part(leaves, rows, heads=slice(None)):
    return {name: x[rows, heads] for name, x in leaves.items()}


def assert_parts_are_what_they_are_together(leaves, mask, backend):
    together = run(leaves, mask, backend)
    for rows in (slice(0, 1), slice(1, None)):
        assert same(run(part(leaves, rows), mask, backend), [x[rows] for x in together])


@pytest.mark.share(4)
@where_products_are_steady
@for_any_shape
@in_any_sum
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_who_else_is_in_the_batch_does_not_change_a_bit_of_the_torch_backend(shape, dtype, mask):
    assert_parts_are_what_they_are_together(inputs(*shape, dtype=dtype), mask, "torch")


@where_products_are_steady
@for_any_shape
def test_who_else_is_in_the_batch_matters_as_little_to_several_threads(shape):
    with threads(2):
        assert_parts_are_what_they_are_together(inputs(*shape), MASKS[1], "torch")


@where_products_are_steady
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_the_other_heads_do_not_change_a_bit_of_the_torch_backend(mask):
    leaves = inputs(2, 3, 3, 65, 129, 17)
    together = run(leaves, mask, "torch")
    for head in range(3):
        heads = slice(head, head + 1)
        assert same(run(part(leaves, slice(None), heads), mask, "torch"), [x[:, heads] for x in together])


@pytest.mark.share(4)
@where_products_are_steady
@for_any_shape
@in_any_sum
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_with_one_thread_the_batch_does_not_change_a_bit_of_the_fused_backend(shape, dtype, mask):
    assert_parts_are_what_they_are_together(inputs(*shape, dtype=dtype), mask, "sdpa")


@where_products_are_steady
@pytest.mark.parametrize("backend", ["torch", "sdpa"])
def test_ragged_rows_are_what_they_are_alone(backend):
    """Beyond a tile each batch row has a schedule of its own, which is the one it has alone."""
    n = 1100
    ids = torch.arange(n).expand(2, -1) // torch.tensor([[100], [700]])
    leaves = inputs(2, 1, 1, n, n, 8)
    together = run(leaves, Documents(ids=ids), backend)
    for row in range(2):
        rows = slice(row, row + 1)
        alone = run(part(leaves, rows), Documents(ids=ids[row]), backend)
        assert same(alone, [x[rows] for x in together])


PRELUDE = """
import hashlib, torch
from regard import attention
from regard.masks import Causal, Window
def digest(count, backend, **options):
    torch.set_num_threads(count)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 65, 48, requires_grad=True) for _ in range(3))
    out = attention(q, k, v, Causal() & Window(40), backend=backend, **options)
    out.sum().backward()
    both = torch.cat([x.detach().flatten() for x in (out, q.grad, k.grad, v.grad)])
    return hashlib.sha256(both.numpy().tobytes()).hexdigest()
"""


def printed(command, **env):
    """The words another process prints that has the functions above."""
    return python("-c", f"{PRELUDE}\nprint(*{command})", env=checkout(**env), check=True).stdout.split()


def test_another_process_gives_the_same_bits():
    here: dict = {}
    exec(PRELUDE, here)
    command = "[digest(1, 'torch'), digest(1, 'sdpa'), digest(1, 'torch', dropout=0.5)]"
    assert printed(command, PYTHONHASHSEED="7") == eval(command, here)


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="only MKL can be asked")
def test_mkl_can_be_asked_for_the_same_bits_with_any_number_of_threads():
    command = "[digest(count, backend) for backend in ('torch', 'sdpa') for count in (1, 2, 3)]"
    digests = printed(command, MKL_CBWR="AUTO,STRICT")
    assert len(set(digests[:3])) == 1
    assert len(set(digests[3:])) == 1
