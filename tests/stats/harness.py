"""A dense map that can be cut anyhow: what a statistic makes of the pieces must not depend on the cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from effort import examples
from regard.masks import Causal, Dense, Mask, Window
from regard.stats import Frame, MapTile, Statistic

KINDS = ("full", "causal", "window", "shared", "ragged")


@dataclass
class DenseMap:
    """A map with the whole matrix in memory: what a statistic is compared with is computed from this."""

    weights: Tensor
    scores: Tensor
    allowed: Tensor
    values: Tensor
    mask: Mask | None

    @property
    def frame(self) -> Frame:
        batch, heads, q, k = self.weights.shape
        dtype = self.weights.dtype
        return Frame(batch=batch, heads=heads, q=q, k=k, mask=self.mask, values=self.values, dtype=dtype)

    @property
    def distance(self) -> Tensor:
        """Position of the query minus position of the key, (q, k)."""
        q, k = self.weights.shape[-2:]
        return torch.arange(k - q, k)[:, None] - torch.arange(k)

    def tile(self, batch: range, heads: range, rows: range, cols: range) -> MapTile | None:
        """One tile as a pass would show it; None where nothing in it may attend."""

        def cut(x: Tensor) -> Tensor:
            x = x[batch.start : batch.stop, heads.start : heads.stop, rows.start : rows.stop]
            return x[..., cols.start : cols.stop].contiguous()

        allowed, weights, scores = cut(self.allowed), cut(self.weights), cut(self.scores)
        if not allowed.any():
            return None
        if self.mask is not None:
            allowed = allowed[: None if self.mask.batch else 1, : None if self.mask.heads else 1]
        masked = None if allowed.all() else allowed
        return MapTile(self.frame, batch, heads, rows, cols, weights, masked, scores_of=lambda: scores)

    def whole(self) -> list[MapTile]:
        """The map in one tile."""
        tile = self.tile(*(range(size) for size in self.weights.shape))
        return [] if tile is None else [tile]


def dense_map(
    seed: int, batch: int, heads: int, q: int, k: int, kind: str = "full", sink: bool = False
) -> DenseMap:
    """A random map in float64. Masks "shared" and "ragged" leave rows dead; with a sink rows sum to < 1."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(batch, heads, q, k, generator=generator, dtype=torch.float64)
    values = torch.randn(batch, heads, k, 3, generator=generator, dtype=torch.float64)
    mask = _mask(kind, (batch, heads, q, k), generator)
    allowed = torch.ones(q, k, dtype=torch.bool) if mask is None else mask.dense(q, k)
    allowed = allowed.expand(batch, heads, q, k)
    scores = scores.masked_fill(~allowed, -torch.inf)
    logits = torch.cat([scores, torch.zeros(batch, heads, q, int(sink), dtype=torch.float64)], -1)
    weights = logits.softmax(-1)[..., :k].nan_to_num(0.0)
    return DenseMap(weights, scores, allowed, values, mask)


def _mask(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> Mask | None:
    if kind in ("full", "causal", "window"):
        return {"full": None, "causal": Causal(), "window": Causal() & Window(5)}[kind]
    shape = shape if kind == "ragged" else shape[2:]
    allowed = torch.rand(shape, generator=generator) < 0.5
    return Dense(allowed & (torch.rand(*shape[:-1], 1, generator=generator) < 0.8))


def cuts(length: int, rng: random.Random) -> list[range]:
    """A length cut at up to four random places."""
    places = sorted({0, length, *(rng.randint(0, length) for _ in range(rng.randint(0, 4)))})
    return [range(a, b) for a, b in pairwise(places)]


def random_tiles(dense: DenseMap, rng: random.Random, all_heads: bool = False) -> list[MapTile]:
    """All of a map's cells once, in rectangles cut and shuffled at random."""
    batch, heads, q, k = dense.weights.shape
    found = [
        dense.tile(some_batch, some_heads, rows, cols)
        for some_batch in cuts(batch, rng)
        for some_heads in ([range(heads)] if all_heads else cuts(heads, rng))
        for rows in cuts(q, rng)
        for cols in cuts(k, rng)
    ]
    rng.shuffle(found)
    return [tile for tile in found if tile is not None]


def fold(statistic: Statistic, frame: Frame, tiles: list[MapTile], rng: random.Random | None = None):
    """The result over some tiles; with `rng`, of several states merged in a random tree."""
    statistic.check(frame)
    states = [statistic.init(frame) for _ in range(rng.randint(1, 4) if rng else 1)]
    for tile in tiles:
        statistic.update(rng.choice(states) if rng else states[0], tile)
    while len(states) > 1 and rng is not None:
        a, b = (states.pop(rng.randrange(len(states))) for _ in range(2))
        states.append(statistic.merge(a, b))
    return statistic.finish(states[0], frame)


def observed(statistic: Statistic, dense: DenseMap, seed: int):
    """The result over random tiles of a map, in random order, by several states."""
    rng = random.Random(seed)
    return fold(statistic, dense.frame, random_tiles(dense, rng, statistic.needs_all_heads), rng)


def in_one(statistic: Statistic, dense: DenseMap):
    """The result over a map in one tile."""
    return fold(statistic, dense.frame, dense.whole())


def in_any_cut(tries: int = 25, **drawn: st.SearchStrategy):
    """Run a test with a map and a seed for `observed`, and with whatever else it wants drawn.

    The map is made inside the test: type checkers draw random numbers, which strategies must not.
    """
    length = st.one_of(st.sampled_from([1, 2, 63, 64, 65]), st.integers(1, 70))
    seeds, sizes = st.integers(0, 2**32), (st.integers(1, 2), st.integers(1, 3), length, length)
    maps = st.tuples(seeds, *sizes, st.sampled_from(KINDS), st.booleans())

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(given_map, given_seed, **others) -> None:
            test(dense_map(*given_map), given_seed, **others)

        # By hand: functools.wraps would show hypothesis the arguments of the test.
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(run, name, getattr(test, name))
        return examples(tries)(given(given_map=maps, given_seed=seeds, **drawn)(run))

    return decorate


def close(actual: Tensor, expected: Tensor, atol: float = 1e-9) -> None:
    """Equal up to rounding, and of the same shape."""
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)
