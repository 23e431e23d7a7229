"""`KVCache` against plain concatenation: any order of appending, attending, reordering and starting anew."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from fuzzing.machines import run_machine
from fuzzing.target import Target
from regard import KVCache, attention
from regard.masks import Causal, StreamingSinks

__all__ = ["CACHE", "CacheMachine"]

HEADS, KV_HEADS, DIM = 4, 2, 3
EXAMPLES = 4


class CacheMachine(RuleBasedStateMachine):
    """A cache, and beside it every key and value it was ever given."""

    @initialize(
        window=st.none() | st.integers(1, 9),
        sinks=st.integers(0, 3),
        batch=st.integers(1, 3),
        seed=st.integers(0, 2**16),
    )
    def begin(self, window: int | None, sinks: int, batch: int, seed: int) -> None:
        self.window, self.sinks = window, 0 if window is None else sinks
        self.cache = KVCache(self.window, self.sinks)
        self.generator = torch.Generator().manual_seed(seed)
        self.keys = self.values = torch.zeros(batch, KV_HEADS, 0, DIM, dtype=torch.float64)

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    @property
    def batch(self) -> int:
        return self.keys.shape[0]

    @rule(new=st.integers(1, 20), learns=st.booleans())
    def append_and_attend(self, new: int, learns: bool) -> None:
        k, v = self.numbers(2, self.batch, KV_HEADS, new, DIM).requires_grad_(learns).unbind()
        q = self.numbers(self.batch, HEADS, new, DIM)
        self.keys, self.values = (
            torch.cat([self.keys, k.detach()], 2),
            torch.cat([self.values, v.detach()], 2),
        )
        kept = self.cache.append(k, v)
        got = attention(q, *kept, self.cache.mask)
        whole = Causal() if self.window is None else StreamingSinks(self.sinks, self.window)
        wanted = attention(q, self.keys, self.values, whole)
        assert torch.allclose(got, wanted, rtol=0, atol=1e-12), (self.cache, new)
        assert kept[0].requires_grad or not learns

    @rule(data=st.data(), size=st.integers(1, 3))
    def reorder(self, data: st.DataObject, size: int) -> None:
        rows = data.draw(st.lists(st.integers(0, self.batch - 1), min_size=size, max_size=size))
        if len(self.cache):
            self.cache.reorder(torch.tensor(rows) if data.draw(st.booleans()) else rows)
            self.keys, self.values = self.keys[rows], self.values[rows]

    @precondition(lambda self: len(self.cache))
    @rule()
    def reset(self) -> None:
        self.cache.reset()
        self.keys, self.values = self.keys[:, :, :0], self.values[:, :, :0]

    @precondition(lambda self: hasattr(self, "cache"))
    @invariant()
    def counts(self) -> None:
        assert self.cache.seen == self.keys.shape[2]
        assert len(self.cache) <= self.cache.seen
        if self.window is None:
            assert len(self.cache) == self.cache.seen

    @precondition(lambda self: hasattr(self, "cache") and len(self.cache))
    @invariant()
    def newest_are_kept(self) -> None:
        kept = len(self.cache)
        recent = kept if self.window is None else min(kept, self.window, self.keys.shape[2])
        assert torch.equal(self.cache.k[:, :, kept - recent :], self.keys[:, :, -recent:])
        assert torch.equal(self.cache.v[:, :, kept - recent :], self.values[:, :, -recent:])


def check(seed: int) -> int:
    return run_machine(CacheMachine, seed, EXAMPLES)


CACHE = Target("cache", "one step of a key–value cache, against plain concatenation", check, tested=1)
