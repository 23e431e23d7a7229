"""Nothing of size q x k is ever made, in either direction."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard import attention
from regard.masks import BigBird, Causal, Documents, Padding, StreamingSinks, Where, Window
from regard.scores import Additive, ALiBi, RelativeBias

N, DIM = 4096, 16
# In bytes: one byte per pair takes twice as much and the map in float32 eight times. What comes near are a
# function's int64 indices, for one block of rows.
FAR_BELOW = N * N // 2


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().nbytes() for x in tree_leaves(made) if isinstance(x, torch.Tensor)]
        self.bytes = max(self.bytes, *sizes, 0)
        return made


def largest(mask=None, heads=1, kv_heads=1, strided=False, **options):
    """The largest tensor of a forward and a backward pass over N queries and keys."""
    q, k, v = (torch.randn(1, h, N, DIM) for h in (heads, kv_heads, kv_heads))
    if strided:
        q, k, v = (x.mT.contiguous().mT for x in (q, k, v))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    with Largest() as seen:
        attention(*leaves, mask, **options).sum().backward()
    return seen.bytes


def near(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() < 100


MASKS = {
    "none": None,
    "causal": Causal(),
    "causal window": Causal() & Window(512),
    "sinks": StreamingSinks(4, 512),
    "documents": Documents(lengths=[1000, 96, 3000]),
    "interleaved documents": Documents(ids=torch.arange(N) % 3),
    "padding": Padding(torch.arange(N) % 7 > 0),
    "where": Where(near),
    "big bird": BigBird(64, N),
    "not": ~Window(100),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("backend", ["torch", "sdpa"])
def test_masks_never_become_matrices(name, backend):
    assert largest(MASKS[name], backend=backend) <= FAR_BELOW


@pytest.mark.share(2)
@pytest.mark.parametrize(("kv_heads", "mask"), [(2, None), (1, Causal())], ids=str)
@pytest.mark.parametrize("backend", ["torch", "sdpa"])
def test_grouped_heads_never_become_matrices(kv_heads, mask, backend):
    assert largest(mask, 4, kv_heads, backend=backend) <= FAR_BELOW


@pytest.mark.share(4)
@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(512)], ids=str)
@pytest.mark.parametrize("backend", ["torch", "sdpa"])
def test_rows_that_are_not_packed_never_become_matrices(mask, backend):
    assert largest(mask, strided=True, backend=backend) <= FAR_BELOW


def twice(s, b, h, q_pos, k_pos):
    return 2 * s


OPTIONS = {
    "soft cap": {"softcap": 30.0},
    "ALiBi": {"bias": ALiBi(torch.tensor([0.5], requires_grad=True))},
    "relative bias": {"bias": RelativeBias(torch.zeros(1, 32))},
    "score_mod": {"score_mod": twice},
    "dropout": {"dropout": 0.1},
    "sink": {"sink": torch.zeros(1)},
    "bias per key": {"bias": torch.zeros(N, requires_grad=True)},
    "additive": {"score": Additive(torch.randn(DIM, 4), torch.randn(DIM, 4), torch.randn(4))},
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", OPTIONS)
def test_options_never_become_matrices(name):
    # An additive score holds four million numbers of its hidden layer at once, whatever the length.
    limit = 4 << 22 if name == "additive" else FAR_BELOW
    assert largest(Causal() & Window(512), **OPTIONS[name]) <= limit


def test_garbage_never_becomes_a_matrix():
    q, k, v = torch.randn(3, 1, 1, N, DIM).unbind()
    k[0, 0, 5] = torch.nan
    with Largest() as seen:
        attention(q, k, v, Causal())
    assert seen.bytes <= FAR_BELOW


def test_the_largest_tensor_would_be_seen():
    q, k = torch.randn(2, 1, 1, N, DIM).unbind()
    with Largest() as seen:
        q @ k.mT
    assert seen.bytes == 4 * N * N
