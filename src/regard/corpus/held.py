"""Dense maps of several layers of one short document, read together."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas.flat import Flat
from regard.atlas.tally import Tally, tally_of
from regard.atlas.words import Words
from regard.maps import AttentionMap

__all__ = ["CELLS", "HeldMap", "row_blocks", "tallies"]

# The most cells of all maps in memory: 128 MiB in float32. A larger layer is streamed.
CELLS = 1 << 25


class HeldMap:
    """The weights of all heads of several layers as one dense map, with the interface of `AttentionMap`.

    A survey takes hundreds of small operations, even for short texts. With the heads of all layers side by
    side it runs them once instead of once per layer.
    """

    def __init__(self, maps: list[AttentionMap]) -> None:
        self.weights: Float[Tensor, "heads q k"] = torch.cat([seen[0] for seen in maps])
        self.lse = torch.cat([seen.lse for seen in maps], 1)
        sinks = [seen.problem.sink for seen in maps]
        self.problem = SimpleNamespace(sink=_joined_sinks(sinks, maps))
        self.mask = maps[0].mask

    @property
    def shape(self) -> tuple[int, int, int, int]:
        heads, q, k = self.weights.shape
        return 1, heads, q, k

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def __getitem__(self, index: Any) -> Tensor:
        _, heads, rows, columns = index
        if isinstance(rows, Tensor) and isinstance(columns, Tensor):
            # Index one axis at a time, which is three times as fast as both at once.
            rows, columns = rows.to(self.device), columns.to(self.device)
            return self.weights[heads].index_select(1, rows).index_select(2, columns)
        return self.weights[heads, rows, columns]


def tallies(
    maps: list[AttentionMap], role: str, words: Words, flat: Flat, cells: int = CELLS
) -> Iterator[Tally]:
    """The tallies of layers under one mask, in order; computed for as many layers at once as fit."""
    _, heads, q, k = maps[0].shape
    together = max(1, cells // max(1, heads * q * k))
    if heads * q * k > cells:
        for seen in maps:
            yield tally_of(seen, role, words, flat)
        return
    for start in range(0, len(maps), together):
        yield _tally(HeldMap(maps[start : start + together]), role, words, flat)


def row_blocks(seen: Any, rows: range, cells: int = CELLS) -> Iterator[tuple[range, Tensor]]:
    """The weights of some rows of a map, (heads, rows, k), in blocks of at most `cells` cells."""
    _, heads, _, k = seen.shape
    step = max(1, cells // max(1, heads * k))
    for start in range(rows.start, rows.stop, step):
        block = range(start, min(start + step, rows.stop))
        yield block, seen[0, :, block.start : block.stop, :]


def _tally(held: HeldMap, role: str, words: Words, flat: Flat) -> Tally:
    weights = held.weights
    top = weights.max(-1)
    live = held.lse[0] > -torch.inf
    return Tally(
        role=role,
        map=held,  # pyright: ignore[reportArgumentType]
        flat=flat,
        words=words,
        distance_sums=_by_distance(weights),
        key_sums=weights.sum(-2).double(),
        entropy=torch.special.entr(weights).sum(-1).double(),
        top_weight=top.values.double(),
        top_key=torch.where(live, top.indices, -1),
    )


def _by_distance(weights: Float[Tensor, "heads q k"]) -> Float[Tensor, "heads distances"]:
    """Sums over the pairs of each distance 1 - n … n - 1, the query's position minus the key's."""
    heads, n, _ = weights.shape
    # Flip the keys, pad to 2 n columns, and view with 2 n - 1: each row is shifted by one more place, so that
    # cells of equal distance share a column.
    wide = torch.nn.functional.pad(weights.flip(-1), (0, n)).flatten(1)[:, : n * (2 * n - 1)]
    return wide.view(heads, n, 2 * n - 1).sum(-2).double()


def _joined_sinks(sinks: list[Tensor | None], maps: list[AttentionMap]) -> Tensor | None:
    """The sink logits of all heads; -inf, which takes no weight, for layers without a sink."""
    if all(sink is None for sink in sinks):
        return None
    filled = [
        seen.lse.new_full((seen.shape[1],), -torch.inf) if sink is None else sink
        for sink, seen in zip(sinks, maps, strict=True)
    ]
    return torch.cat([sink.float().flatten() for sink in filled])
