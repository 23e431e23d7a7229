"""Records the attention calls of a model: heads, sizes, and the keys that its mask allows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.cost.reach import FULL, Reach

__all__ = ["Call", "Calls", "listening", "reach_of"]

NAME = "regard_cost"
# Longer than any window or chunk of models: a mask that allows every key up to here counts as full.
FAR = 1 << 18


@dataclass(frozen=True)
class Call:
    """One attention call; `reach` is None if its mask is unknown."""

    label: Hashable
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    queries: int
    keys: int
    reach: Reach | None
    causal: bool


@dataclass
class Calls:
    """The calls of one pass, and the masks that were made in it."""

    label: Callable[[], Hashable]
    made: list[Call] = field(default_factory=list)
    # Keep the tensor alive, so that its id stays unique.
    masks: dict[int, tuple[Tensor, tuple[Reach, bool] | None]] = field(default_factory=dict)

    def reach(self, mask: Tensor | None, window: int | None) -> tuple[Reach | None, bool]:
        """The reach of a mask: from its construction, or that of the pass's only mask."""
        meanings = {found for _, found in self.masks.values()}
        known = self.masks.get(id(mask), (mask, None))[1] if mask is not None else None
        if known is None and len(meanings) == 1:
            (known,) = meanings
        if known is None:
            return None, True
        reach, causal = known
        return (Reach("window", window) if window and reach == FULL else reach), causal


_listeners: list[Calls] = []


@contextmanager
def listening(label: Callable[[], Hashable]) -> Iterator[Calls]:
    """Within the block, collect the calls of models whose attention implementation is `NAME`."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)
    _listeners.append(Calls(label))
    try:
        yield _listeners[-1]
    finally:
        _listeners.pop()


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **more: Any
) -> tuple[Tensor, None]:
    """Record the sizes; returns an output of the right shape without computing it."""
    calls = _listeners[-1]
    reach, causal = calls.reach(attention_mask, more.get("sliding_window"))
    batch, heads, queries, dim = query.shape
    calls.made.append(
        Call(
            calls.label(),
            heads,
            key.shape[1],
            dim,
            value.shape[-1],
            queries,
            key.shape[-2],
            reach,
            causal,
        )
    )
    return query.new_empty(batch, queries, heads, value.shape[-1]), None


def _mask(
    batch_size: int,
    q_length: int | None = None,
    kv_length: int = 0,
    *args: Any,
    mask_function: Callable[..., Tensor] | None = None,
    cache_position: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    **more: Any,
) -> Tensor:
    queries = q_length if cache_position is None else cache_position.shape[0]
    made = torch.empty(batch_size, 1, queries or 0, kv_length, dtype=dtype)
    _listeners[-1].masks[id(made)] = (made, None if mask_function is None else reach_of(mask_function))
    return made


def reach_of(mask_function: Callable[..., Tensor]) -> tuple[Reach, bool] | None:
    """The reach of a mask function of transformers, and whether it is causal; None if it is no known reach.

    `mask_function(batch, head, query, key)` takes tensors of positions.

    >>> reach_of(lambda b, h, q, k: (k <= q) & (q - k < 4))
    (window:4, True)
    >>> reach_of(lambda b, h, q, k: (q - k).abs() < 3)
    (window:3, False)
    """
    zero = torch.zeros((), dtype=torch.long, device="cpu")
    steps = torch.arange(FAR, device="cpu")

    def allowed(q: Tensor, k: Tensor) -> Tensor:
        found = mask_function(zero, zero, q, k)
        return torch.as_tensor(found, device="cpu").expand(torch.broadcast_shapes(q.shape, k.shape))

    try:
        causal = not bool(allowed(steps[:1], steps[1:2]).any())
        behind = int(allowed(steps[-1:], steps).sum())  # keys that the last position sees
        breaks = (~allowed(steps[1:], steps[:-1])).nonzero()[:1]  # the first key hidden from its neighbour
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return None
    if len(breaks):
        chunk = int(breaks) + 1
        return (Reach("chunk", chunk) if chunk > 1 else Reach("window", 1)), causal
    return (FULL if behind == FAR else Reach("window", behind)), causal
