"""Calls of the engine judged by the dense oracle: output and every gradient, in any dtype."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from torch import Tensor

from oracle import assert_as_good_as_eager, dense_attention, dense_mask
from regard import attention
from regard.errors import RegardError
from regard.masks import (
    BigBird,
    Causal,
    Chunk,
    Dense,
    Documents,
    Global,
    Longformer,
    Mask,
    Padding,
    Prefix,
    RandomBlocks,
    StreamingSinks,
    Strided,
    Where,
    Window,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
in_every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
on_both_backends = pytest.mark.parametrize("backend", ["torch", "sdpa"])

Leaves = dict[str, Tensor]
Function = Callable[[Leaves], Tensor]


def qkv(
    q: int,
    k: int,
    *,
    batch: int = 2,
    heads: int = 4,
    kv_heads: int | None = None,
    dim: int = 16,
    v_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Leaves:
    """Random queries, keys and values."""
    kv_heads, v_dim = kv_heads or heads, v_dim or dim
    sizes = {"q": (heads, q, dim), "k": (kv_heads, k, dim), "v": (kv_heads, k, v_dim)}
    return {name: torch.randn(batch, *size).to(dtype) for name, size in sizes.items()}


def differentiated(function: Function, leaves: Leaves, dtype: torch.dtype | None = None) -> Leaves:
    """The output of a function and the gradients of its leaves, by name, in float64 or their own dtype."""
    own = {name: x.detach().to(dtype or x.dtype).requires_grad_() for name, x in leaves.items()}
    out = function(own)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    grads = torch.autograd.grad(out, list(own.values()), upstream, allow_unused=True, materialize_grads=True)
    return {"out": out.detach(), **dict(zip(own, grads, strict=True))}


def judge(ours: Function, dense: Function, leaves: Leaves) -> None:
    """At most twice the error of eager attention in the output, three times in gradients; float64 exact."""
    got, eager = differentiated(ours, leaves), differentiated(dense, leaves)
    exact = differentiated(dense, leaves, torch.float64)
    for name, tensor in got.items():
        assert tensor.dtype == (leaves["q"] if name == "out" else leaves[name]).dtype
        assert_as_good_as_eager(tensor, eager[name], exact[name], 2.0 if name == "out" else 3.0)
        if tensor.dtype == torch.float64:
            torch.testing.assert_close(tensor, exact[name], rtol=0, atol=1e-10)


def judge_call(leaves: Leaves, mask: Mask | None = None, backend: str = "auto", **options) -> None:
    """Judge one call of `attention` whose options the oracle takes as they are."""
    allowed = dense_mask(mask, leaves["q"], leaves["k"])
    judge(
        lambda x: attention(**x, mask=mask, backend=backend, **options),
        lambda x: dense_attention(**x, allowed=allowed, **options).out,
        leaves,
    )


def given(**changes) -> dict:
    """A call that works, but for the changes."""
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    return {"q": q, "k": k, "v": v, **changes}


def flags(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def refused(call: dict, error: type[Exception], message: str) -> None:
    """The call raises this error with exactly this text, and callers of PyTorch can catch it too."""
    with pytest.raises(error, match=f"^{re.escape(message)}$") as caught:
        attention(**call)
    assert isinstance(caught.value, RegardError)
    assert isinstance(caught.value, ValueError)


class Masks(Mapping[str, Mask | None]):
    """Masks by name, each made when it is asked for: most tests want one of them."""

    def __init__(self, makers: dict[str, Callable[[], Mask | None]]) -> None:
        self.makers = makers

    def __getitem__(self, name: str) -> Mask | None:
        return self.makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


def every_mask(q: int, k: int, batch: int, heads: int) -> Masks:
    """One mask of every kind for q queries and k keys, and some that leave rows with nothing to attend to."""

    def some(*shape: int) -> Tensor:
        return torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3

    def ids() -> Tensor:
        return torch.randint(-1, 3, (batch, k), generator=torch.Generator().manual_seed(0)).sort().values

    return Masks(
        {
            "none": lambda: None,
            "causal": lambda: Causal(),
            "causal top left": lambda: Causal(shift=q - k),
            "window": lambda: Window(9, 4),
            "causal window": lambda: Causal() & Window(9),
            "chunk": lambda: Causal() & Chunk(10),
            "prefix": lambda: Causal() | Prefix(7),
            "global": lambda: Window(3) | Global([0, k - 1]),
            "strided": lambda: Causal() & (Strided(5) | Window(5)),
            "random blocks": lambda: RandomBlocks(8, 2, length=k),
            "documents": lambda: Causal() & Documents(lengths=[k // 3, k - k // 3]),
            "ragged documents": lambda: Documents(ids=ids()),
            "interleaved documents": lambda: Documents(ids=torch.arange(k) % 3 - 1),
            "padding": lambda: Padding(torch.arange(k) < k - 5),
            "ragged padding": lambda: Causal() & Padding.from_lengths([k, *([k // 4] * (batch - 1))], k),
            "no key at all": lambda: Padding(torch.zeros(k, dtype=torch.bool)),
            "dense": lambda: Dense(some(q, k)),
            "dense by head": lambda: Dense(some(1, heads, q, k)),
            "dense by row and head": lambda: Dense(some(batch, heads, q, k)),
            "where": lambda: Where(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 3 == 0),
            "where by row and head": lambda: Where(
                lambda b, h, q_idx, kv_idx: (q_idx + 3 * kv_idx + b) % 5 < 1 + h
            ),
            "big bird": lambda: BigBird(8, k, random_blocks=1, global_blocks=1),
            "longformer": lambda: Longformer(6, [2]),
            "streaming sinks": lambda: StreamingSinks(2, 9),
            "not": lambda: ~(Window(5) | Prefix(3)),
        }
    )


MASKS = tuple(every_mask(33, 65, 2, 4))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let PyTorch use so many threads, and put back what it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_random_state() -> Iterator[None]:
    """For calls inside Hypothesis tests: the shape checker draws from `random`, which Hypothesis seeded."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


@cache
def steady_products() -> bool:
    """Whether PyTorch's own products keep their bits in any batch, for any number of threads, if tall enough.

    regard can keep its bits only where they do: see docs/determinism.md.
    """
    for dtype, tall in ((d, t) for d in (torch.float32, torch.float64) for t in (16, 33, 65, 128)):
        a, b = torch.randn(3, 2 * tall, 65, dtype=dtype), torch.randn(3, 65, 130, dtype=dtype)
        whole = torch.bmm(a, b)
        for rows in (slice(0, tall), slice(tall, 2 * tall)):
            if not torch.equal(torch.bmm(a[:, rows], b), whole[:, rows]):
                return False
        for count in (2, 3):
            with threads(count):
                if not torch.equal(torch.bmm(a, b), whole):
                    return False
    return True


where_products_are_steady = pytest.mark.skipif(
    not steady_products(),
    reason="this machine rounds matrix products by batch or threads; see docs/determinism.md",
)
