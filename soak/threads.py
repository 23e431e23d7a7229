"""Threads that read one map at once give the same bits as one thread.

A map that `observe` returned knows the log-sum-exp of its rows. One that was made of queries and keys alone
learns it when a row is first read, and the rows that are read together decide the last bit of it: there
threads are held to the dense map within a few of those bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import torch
from torch import Tensor

from regard import AttentionMap, Causal, Window, observe
from regard.masks import Mask
from soak.samples import digest

__all__ = ["threads"]

SHAPES: tuple[tuple[int, int, Mask], ...] = (
    (257, 257, Causal()),
    (129, 301, Causal() & Window(65)),
    (63, 65, ~Window(3)),
)


def threads(count: int, rounds: int, reads: int = 30) -> dict[str, int]:
    """In every round a new map of each kind is read by all threads at once, each in its own order."""
    done = 0
    with ThreadPoolExecutor(count) as pool:
        for number in range(rounds):
            queries, keys, mask = SHAPES[number % len(SHAPES)]
            generator = torch.Generator().manual_seed(number)
            q = torch.randn(1, 4, queries, 16, generator=generator)
            k, v = torch.randn(2, 1, 2, keys, 16, generator=generator)
            places = _places(random.Random(number), queries, keys, reads)
            seen = observe(q, k, v, mask=mask, stats=[]).map
            wanted = [seen[place] for place in places]
            done += _read(pool, count, seen, places, wanted, lambda a, b: digest(a) == digest(b))
            fresh = AttentionMap.of(q, k, mask=mask)
            done += _read(pool, count, fresh, places, wanted, partial(torch.allclose, rtol=1e-5, atol=1e-9))
    return {"threads": count, "maps": 2 * rounds, "reads": done, "wrong": 0}


def _read(
    pool: ThreadPoolExecutor,
    count: int,
    shared: AttentionMap,
    places: list[Any],
    wanted: list[Tensor],
    same: Callable[[Tensor, Tensor], bool],
) -> int:
    """Let all threads read all places; how many reads that were."""
    start = Barrier(count)

    def read(seed: int) -> int:
        order = random.Random(seed).sample(range(len(places)), len(places))
        start.wait()
        for place in order:
            if not same(shared[places[place]], wanted[place]):
                raise AssertionError(f"thread {seed} read something else at {places[place]}")
        return len(order)

    return sum(pool.map(read, range(count)))


def _places(chance: random.Random, queries: int, keys: int, count: int) -> list[tuple[int | slice, ...]]:
    """Cells, rows, columns and tiles of a map, at random."""
    found = []
    for _ in range(count):
        i, j = sorted(chance.sample(range(queries), 2))
        m, n = sorted(chance.sample(range(keys), 2))
        head = chance.randrange(4)
        kinds = (
            (0, head, i, m),
            (0, head, i),
            (0, head, slice(None), m),
            (0, head, slice(i, j), slice(m, n)),
            (0, slice(None), slice(i, j), slice(m, n)),
        )
        found.append(chance.choice(kinds))
    return found
