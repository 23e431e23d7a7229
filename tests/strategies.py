"""Hypothesis strategies that tests of several packages share."""

from __future__ import annotations

import random

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.masks import (
    And,
    Causal,
    Chunk,
    Dense,
    Documents,
    Global,
    Mask,
    Not,
    Or,
    Padding,
    Prefix,
    RandomBlocks,
    Strided,
    Where,
    Window,
)

__all__ = ["held_masks", "lengths", "masks", "shapes"]

SEEDS = st.integers(0, 2**16)


def lengths(most: int = 65) -> st.SearchStrategy[int]:
    """Lengths on either side of the sizes where tiles end."""
    return st.sampled_from([n for n in (1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 129) if n <= most])


def shapes(k: int) -> st.SearchStrategy[Mask]:
    """Masks that are closed forms of positions, at sizes that matter for k keys."""
    size = st.integers(1, k + 2)
    kinds = st.one_of(
        st.integers(-k - 1, k + 1).map(Causal),
        st.builds(Window, size, st.none() | size),
        st.builds(Chunk, size, st.integers(0, 2)),
        st.integers(0, k + 1).map(Prefix),
        st.integers(0, k + 1).map(Global),
        st.lists(st.integers(0, k), max_size=4).map(Global),
        size.map(Strided),
        _random_blocks(k),
    )
    return _quietly(kinds)


def held_masks(q: int, k: int, batch: int = 1, heads: int = 1) -> st.SearchStrategy[Mask]:
    """Masks that hold a tensor, for exactly these sizes; some vary over batch and heads, some do not."""
    kinds = [_padding(k, batch), _dense(q, k, batch, heads)]
    if q <= k:
        kinds.append(_documents(k, batch))
    return _quietly(st.one_of(kinds))


def masks(q: int, k: int, batch: int = 1, heads: int = 1, leaves: int = 4) -> st.SearchStrategy[Mask]:
    """Any mask that is valid for q queries and k keys: joins of up to `leaves` shapes, tensors and functions.

    `Where` among them is bound to batch and heads already.
    """
    leaf = st.one_of(shapes(k), held_masks(q, k, batch, heads), _where(batch, heads))
    tree = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda parts: And(*parts)),
            st.tuples(inner, inner).map(lambda parts: Or(*parts)),
            inner.map(Not),
        ),
        max_leaves=leaves,
    )
    return _quietly(tree)


@st.composite
def _quietly(draw: st.DrawFn, kinds: st.SearchStrategy[Mask]) -> Mask:
    # The shape checker picks items of containers with `random`, whose state belongs to Hypothesis.
    state = random.getstate()
    try:
        return draw(kinds)
    finally:
        random.setstate(state)


@st.composite
def _random_blocks(draw: st.DrawFn, k: int) -> Mask:
    block = draw(st.integers(1, k + 1))
    per_row = draw(st.integers(1, min(3, -(-k // block))))
    return RandomBlocks(block, per_row, length=k, seed=draw(SEEDS))


def _flags(seed: int, shape: tuple[int, ...]) -> Tensor:
    """Random flags in lumps, so that some tiles are all True and some all False."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand([-(-size // 9) for size in shape], generator=generator) < 0.5
    for dim, size in enumerate(shape):
        coarse = coarse.repeat_interleave(9, dim).narrow(dim, 0, size)
    noise = torch.rand(shape, generator=generator) < 0.02
    return coarse ^ noise


def _padding(k: int, batch: int) -> st.SearchStrategy[Mask]:
    shape = st.sampled_from([(k,), (1, k), (batch, k)])
    ragged = st.lists(st.integers(0, k), min_size=batch, max_size=batch).map(
        lambda n: Padding.from_lengths(n, k)
    )
    return st.builds(_flags, SEEDS, shape).map(Padding) | ragged


def _dense(q: int, k: int, batch: int, heads: int) -> st.SearchStrategy[Mask]:
    shape = st.sampled_from([(q, k), (1, heads, q, k), (batch, 1, q, k), (batch, heads, q, k)])
    return st.builds(_flags, SEEDS, shape).map(Dense)


@st.composite
def _documents(draw: st.DrawFn, k: int, batch: int) -> Mask:
    cuts = sorted(draw(st.lists(st.integers(0, k), max_size=4)))
    packed = [stop - start for start, stop in zip([0, *cuts], [*cuts, k], strict=True)]
    if draw(st.booleans()):
        return Documents(lengths=packed)
    shape = draw(st.sampled_from([(k,), (1, k), (batch, k)]))
    seed = draw(SEEDS)
    ids = torch.arange(len(packed)).repeat_interleave(torch.tensor(packed)).expand(shape)
    interleaved, padded = _flags(seed, shape), _flags(seed + 1, shape) & _flags(seed + 2, shape)
    return Documents(ids=torch.where(padded, -1, ids + 10 * interleaved * draw(st.booleans())))


def _where(batch: int, heads: int) -> st.SearchStrategy[Mask]:
    rules = [
        lambda b, h, q_idx, kv_idx: q_idx >= kv_idx,
        lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() <= 5 * h,
        lambda b, h, q_idx, kv_idx: (q_idx + 3 * kv_idx + b) % 5 < 2 + h,
        lambda b, h, q_idx, kv_idx: kv_idx < 4 + b,
    ]
    where = st.builds(Where, st.sampled_from(rules), st.integers(-3, 3))
    return where.map(lambda mask: mask.bind(batch, heads))
