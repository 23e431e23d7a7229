"""Sends keys and values to the ranks whose queries need them, and their gradients back.

Every rank computes from the mask which keys the others need, so no requests are sent, and only needed keys.
`gather` receives everything at once; `ring` receives one rank's keys while it computes with another's. Both
add in an order that depends only on the rank and the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.distributed.needs import Needs
from regard.distributed.ranks import Flight, Ranks

__all__ = ["Keys", "Route"]

FORWARD, BACK = 1, 2


@dataclass(frozen=True)
class Keys:
    """Adjacent keys with their values, and the rank that owns them."""

    at: range
    k: Float[Tensor, "batch kv_heads n dim"]
    v: Float[Tensor, "batch kv_heads n v_dim"]
    owners: tuple[tuple[int, range], ...]

    def part(self, at: range) -> tuple[Tensor, Tensor]:
        cut = slice(at.start - self.at.start, at.stop - self.at.start)
        return self.k[:, :, cut], self.v[:, :, cut]


@dataclass(frozen=True)
class Route:
    """The keys and values of one rank, and their exchange with the other ranks."""

    ranks: Ranks
    needs: Needs
    how: str
    k: Float[Tensor, "batch kv_heads n dim"]
    v: Float[Tensor, "batch kv_heads n v_dim"]

    def arrivals(self) -> Iterator[list[Keys]]:
        """Yield all keys that this rank's queries need, in a fixed order; each is valid until the next."""
        if self.how == "gather":
            yield self._gathered()
            return
        me, size = self.ranks.rank, self.ranks.size
        here, step = self._own(), 0
        while True:
            step += 1
            flight = self._launch([step]) if step < size else None
            yield here
            if flight is None:
                return
            flight[0].wait()
            here = self._unpacked((me - step) % size, flight[1][(me - step) % size])

    def _gathered(self) -> list[Keys]:
        flight, lands = self._launch(range(1, self.ranks.size))
        flight.wait()
        found = self._own() + [run for owner in sorted(lands) for run in self._unpacked(owner, lands[owner])]
        found.sort(key=lambda run: run.at.start)
        groups: list[list[Keys]] = []
        for run in found:
            if groups and groups[-1][-1].at.stop == run.at.start:
                groups[-1].append(run)
            else:
                groups.append([run])
        return [_joined(group) for group in groups]

    def _own(self) -> list[Keys]:
        me = self.ranks.rank
        return [Keys(at, *self._local(at), owners=((me, at),)) for at in self.needs.of(me, me)]

    def _local(self, at: range) -> tuple[Tensor, Tensor]:
        rows = self.needs.keys.rows(self.ranks.rank, at)
        return self.k[:, :, rows.start : rows.stop], self.v[:, :, rows.start : rows.stop]

    def _launch(self, steps: list[int] | range) -> tuple[Flight, dict[int, Tensor]]:
        """Send this rank's keys to the rank `steps` further on, and receive those of the rank `steps`
        before."""
        me, size = self.ranks.rank, self.ranks.size
        sends, lands = {}, {}
        for step in steps:
            other, owner = (me + step) % size, (me - step) % size
            sends[other] = _packed([self._local(at) for at in self.needs.of(other, me)], self.k)
            lands[owner] = self.k.new_empty(self.needs.count(me, owner) * self._row)
        return self.ranks.swap(sends, lands, FORWARD), lands

    @property
    def _row(self) -> int:
        """The numbers per key and its value, over all key heads."""
        return self.k.shape[0] * self.k.shape[1] * (self.k.shape[3] + self.v.shape[3])

    def _unpacked(self, owner: int, flat: Tensor) -> list[Keys]:
        runs = self.needs.of(self.ranks.rank, owner)
        return [
            Keys(at, k, v, ((owner, at),)) for at, (k, v) in zip(runs, self._split(flat, runs), strict=True)
        ]

    def _split(self, flat: Tensor, runs: tuple[range, ...]) -> Iterator[tuple[Tensor, Tensor]]:
        lead, start = self.k.shape[:2], 0
        for at in runs:
            parts = []
            for dim in (self.k.shape[3], self.v.shape[3]):
                size = lead[0] * lead[1] * len(at) * dim
                parts.append(flat[start : start + size].view(*lead, len(at), dim))
                start += size
            yield parts[0], parts[1]


class Return:
    """Sends gradients of keys and values to their owners, which add them in a fixed order."""

    def __init__(self, route: Route, dtype: torch.dtype) -> None:
        self.route, self.dtype = route, dtype
        self.k = torch.zeros_like(route.k, dtype=dtype, memory_format=torch.contiguous_format)
        self.v = torch.zeros_like(route.v, dtype=dtype, memory_format=torch.contiguous_format)
        self.step = 0
        self.waiting: tuple[Flight, dict[int, Tensor]] | None = None

    def add(self, found: list[tuple[Keys, Tensor, Tensor]]) -> None:
        """Add the gradients of one arrival; those of other ranks are sent while the next is computed."""
        me, size = self.route.ranks.rank, self.route.ranks.size
        by_owner: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for keys, d_k, d_v in found:
            for owner, at in keys.owners:
                cut = slice(at.start - keys.at.start, at.stop - keys.at.start)
                by_owner.setdefault(owner, []).append((d_k[:, :, cut], d_v[:, :, cut]))
        self._add(me, by_owner.pop(me, []))
        gather = self.route.how == "gather"
        steps = range(1, size) if gather else [self.step] if self.step else []
        self.step += 1
        self.settle()
        sends = {(me - s) % size: _packed(by_owner.get((me - s) % size, []), self.k) for s in steps}
        needs, row = self.route.needs, self.route._row
        lands = {(me + s) % size: self.k.new_empty(needs.count((me + s) % size, me) * row) for s in steps}
        self.waiting = self.route.ranks.swap(sends, lands, BACK), lands

    def settle(self) -> None:
        """Wait for outstanding messages, and add them."""
        if self.waiting is None:
            return
        flight, lands = self.waiting
        flight.wait()
        for other in sorted(lands):
            runs = self.route.needs.of(other, self.route.ranks.rank)
            self._add(other, list(self.route._split(lands[other], runs)))
        self.waiting = None

    def _add(self, user: int, grads: list[tuple[Tensor, Tensor]]) -> None:
        """Add the gradients through the queries of rank `user` to this rank's keys."""
        me = self.route.ranks.rank
        runs = self.route.needs.of(user, me)
        for at, (d_k, d_v) in zip(runs if grads else (), grads, strict=True):
            rows = self.route.needs.keys.rows(me, at)
            self.k[:, :, rows.start : rows.stop] += d_k
            self.v[:, :, rows.start : rows.stop] += d_v


def _packed(parts: list[tuple[Tensor, Tensor]], like: Tensor) -> Tensor:
    """Keys and values of several runs as one message."""
    flat = [x.reshape(-1) for pair in parts for x in pair]
    return torch.cat(flat) if flat else like.new_empty(0)


def _joined(runs: list[Keys]) -> Keys:
    if len(runs) == 1:
        return runs[0]
    k, v = (torch.cat([getattr(run, name) for run in runs], 2) for name in ("k", "v"))
    owners = tuple(owner for run in runs for owner in run.owners)
    return Keys(range(runs[0].at.start, runs[-1].at.stop), k, v, owners)
