"""Chooses the exchange of a call, with the reason and the bytes sent."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from regard.distributed.needs import Needs
from regard.engine.problem import Problem
from regard.errors import DistributedError

__all__ = ["EXCHANGES", "Plan", "planned"]

EXCHANGES = ("auto", "gather", "heads", "ring")
# Up to this size, all keys and values are received at once; above it, one rank's at a time.
GATHERED = 256 << 20


@dataclass(frozen=True)
class Plan:
    """The exchange of a call, the reason for it, and what this rank sends.

    `keys_sent` counts keys with their values; a key sent to two ranks counts twice. `forward_bytes` and
    `backward_bytes` are the bytes that this rank sends in each pass.
    """

    exchange: str
    reason: str
    keys_sent: int
    keys_received: int
    forward_bytes: int
    backward_bytes: int

    def __str__(self) -> str:
        return f"{self.exchange}: {self.reason}"


def planned(problem: Problem, needs: Needs, rank: int, exchange: str, heads_refusal: str | None) -> Plan:
    """Choose the exchange for `auto`; use or refuse one that is named."""
    if exchange == "heads" and heads_refusal is not None:
        raise DistributedError(f"exchange='heads' cannot be used: {heads_refusal}. Use exchange='ring'.")
    counts = _Counts(problem, needs, rank)
    size = needs.keys.ranks
    # Use the maximum over all ranks, so that all make the same choice.
    held = counts.key_bytes * max(needs.received(r) for r in range(size))
    if exchange != "auto":
        return counts.plan(exchange, "asked for by name")
    if size == 1:
        return counts.plan("gather", "one rank holds everything")
    others = counts.key_bytes * sum(needs.sent(r) for r in range(size))
    heads = sum(_Counts(problem, needs, r).heads_bytes[0] for r in range(size))
    if heads_refusal is None and heads < others:
        return counts.plan("heads", f"all heads move {heads:,} bytes, all keys that are needed {others:,}")
    if held <= GATHERED:
        return counts.plan("gather", f"a rank receives at most {held:,} bytes of keys, which fit at once")
    return counts.plan("ring", f"a rank receives up to {held:,} bytes of keys, too many to hold at once")


class _Counts:
    """The formulas for what one rank sends."""

    def __init__(self, problem: Problem, needs: Needs, rank: int) -> None:
        self.p, self.needs, self.rank = problem, needs, rank
        self.numbers = problem.batch * problem.k.shape[1] * (problem.k.shape[3] + problem.v.shape[3])

    @property
    def key_bytes(self) -> int:
        """The bytes of one key and its value, over all key heads."""
        return self.numbers * self.p.k.element_size()

    @property
    def heads_bytes(self) -> tuple[int, int]:
        """The bytes that a rank sends with exchange "heads", forward (its inputs and others' outputs) and
        backward."""
        p, me = self.p, self.rank
        rows, keys = self.needs.queries, self.needs.keys
        mine = len(head_share(p.k.shape[1], keys.ranks)[me])
        others, dim, v_dim = p.k.shape[1] - mine, p.k.shape[3], p.v.shape[3]
        far_rows, far_keys = rows.length - rows.sizes[me], keys.length - keys.sizes[me]
        given = p.group * rows.sizes[me] * others
        back = p.group * far_rows * mine
        forward = given * dim + keys.sizes[me] * others * (dim + v_dim) + back * v_dim
        backward = given * v_dim + far_keys * mine * (dim + v_dim) + back * dim
        each = p.batch * p.q.element_size()
        return each * forward, each * backward

    def plan(self, exchange: str, reason: str) -> Plan:
        sent, received = self.needs.sent(self.rank), self.needs.received(self.rank)
        if exchange == "heads":
            return Plan(exchange, reason, 0, 0, *self.heads_bytes)
        forward = self.key_bytes * sent
        # Keys are sent again, and gradients are sent back in the dtype of sums.
        wide = torch.empty((), dtype=self.p.accumulate).element_size()
        return Plan(exchange, reason, sent, received, forward, forward + self.numbers * wide * received)


def head_share(kv_heads: int, ranks: int) -> tuple[range, ...]:
    """The key heads that each rank computes.

    >>> head_share(3, 2)
    (range(0, 2), range(2, 3))
    """
    edges = [-(-kv_heads * r // ranks) for r in range(ranks + 1)]
    return tuple(range(a, b) for a, b in pairwise(edges))
