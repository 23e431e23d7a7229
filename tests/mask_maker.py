"""Random masks of every kind, joined at random."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from choice import Choice
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

__all__ = ["make_held_mask", "make_mask", "make_shape"]


def make_shape(choice: Choice, k: int) -> Mask:
    """A closed form of positions, at a size that matters for k keys."""

    def size() -> int:
        return choice.integer(1, k + 2)

    kinds: list[Callable[[], Mask]] = [
        lambda: Causal(choice.integer(-k - 1, k + 1)),
        lambda: Window(size(), size() if choice.flag() else None),
        lambda: Chunk(size(), choice.integer(0, 2)),
        lambda: Prefix(choice.integer(0, k + 1)),
        lambda: Global(choice.integer(0, k + 1)),
        lambda: Global(choice.integers(0, k, 4)),
        lambda: Strided(size()),
        lambda: _random_blocks(choice, k),
    ]
    return choice.pick(kinds)()


def make_held_mask(choice: Choice, q: int, k: int, batch: int = 1, heads: int = 1) -> Mask:
    """A mask that holds a tensor, for exactly these sizes; some vary over batch and heads, some do not."""
    kinds = [_padding, _dense, _documents] if q <= k else [_padding, _dense]
    return choice.pick(kinds)(choice, q, k, batch, heads)


def make_mask(choice: Choice, q: int, k: int, batch: int = 1, heads: int = 1, leaves: int = 4) -> Mask:
    """Any mask that is valid for q queries and k keys: a join of up to `leaves` others.

    `Where` among them is bound to batch and heads already.
    """
    if leaves > 1 and choice.flag():
        kind = choice.pick([Not, And, Or])
        if kind is Not:
            return Not(make_mask(choice, q, k, batch, heads, leaves - 1))
        left = choice.integer(1, leaves - 1)
        sides = (make_mask(choice, q, k, batch, heads, size) for size in (left, leaves - left))
        return kind(*sides)
    kind = choice.pick(["shape", "held", "function"])
    if kind == "shape":
        return make_shape(choice, k)
    return make_held_mask(choice, q, k, batch, heads) if kind == "held" else _where(choice, batch, heads)


def _random_blocks(choice: Choice, k: int) -> Mask:
    block = choice.integer(1, k + 1)
    per_row = choice.integer(1, min(3, -(-k // block)))
    return RandomBlocks(block, per_row, length=k, seed=choice.seed())


def _flags(seed: int, shape: tuple[int, ...]) -> Tensor:
    """Random flags in lumps, so that some tiles are all True and some all False."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand([-(-size // 9) for size in shape], generator=generator) < 0.5
    for dim, size in enumerate(shape):
        coarse = coarse.repeat_interleave(9, dim).narrow(dim, 0, size)
    noise = torch.rand(shape, generator=generator) < 0.02
    return coarse ^ noise


def _padding(choice: Choice, q: int, k: int, batch: int, heads: int) -> Mask:
    if choice.flag():
        return Padding.from_lengths([choice.integer(0, k) for _ in range(batch)], k)
    return Padding(_flags(choice.seed(), choice.pick([(k,), (1, k), (batch, k)])))


def _dense(choice: Choice, q: int, k: int, batch: int, heads: int) -> Mask:
    shapes = [(q, k), (1, heads, q, k), (batch, 1, q, k), (batch, heads, q, k)]
    return Dense(_flags(choice.seed(), choice.pick(shapes)))


def _documents(choice: Choice, q: int, k: int, batch: int, heads: int) -> Mask:
    cuts = sorted(choice.integers(0, k, 4))
    packed = [stop - start for start, stop in zip([0, *cuts], [*cuts, k], strict=True)]
    if choice.flag():
        return Documents(lengths=packed)
    shape = choice.pick([(k,), (1, k), (batch, k)])
    seed = choice.seed()
    ids = torch.arange(len(packed)).repeat_interleave(torch.tensor(packed)).expand(shape)
    interleaved, padded = _flags(seed, shape), _flags(seed + 1, shape) & _flags(seed + 2, shape)
    return Documents(ids=torch.where(padded, -1, ids + 10 * interleaved * choice.flag()))


RULES = [
    lambda b, h, q_idx, kv_idx: q_idx >= kv_idx,
    lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() <= 5 * h,
    lambda b, h, q_idx, kv_idx: (q_idx + 3 * kv_idx + b) % 5 < 2 + h,
    lambda b, h, q_idx, kv_idx: kv_idx < 4 + b,
]


def _where(choice: Choice, batch: int, heads: int) -> Mask:
    return Where(choice.pick(RULES), choice.integer(-3, 3)).bind(batch, heads)
