"""The all-to-all exchange over heads (Ulysses): each rank computes some heads over the whole sequence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.distributed.agreement import agree
from regard.distributed.needs import Needs
from regard.distributed.partial import Call, whole
from regard.distributed.plan import head_share
from regard.distributed.ranks import Ranks
from regard.distributed.sharding import Sharding
from regard.engine.problem import Problem
from regard.engine.scoring import Scoring
from regard.scores import ALiBi, RelativeBias

__all__ = ["attend_heads", "heads_refusal"]


def heads_refusal(problem: Problem, needs: Needs, bias_rows: str) -> str | None:
    """Why heads can't be distributed over ranks, or None if they can."""
    kv_heads, ranks = problem.k.shape[1], needs.keys.ranks
    if kv_heads < ranks:
        return f"k has {kv_heads} heads, and each of {ranks} ranks needs one"
    if bias_rows == "rank":
        return "the bias has the rows of this rank only"
    if needs.mask is not None and needs.mask.heads is not None:
        return "the mask tells heads apart"
    bias = problem.scoring.bias
    if bias is not None and not isinstance(bias, Tensor | ALiBi | RelativeBias):
        return f"{type(bias).__name__} cannot be cut by heads"
    return None


def attend_heads(call: Call, ranks: Ranks, needs: Needs) -> Tensor:
    """The output of this rank's queries; each head is computed by one rank."""
    p = call.problem
    share = head_share(p.k.shape[1], ranks.size)
    q_share = tuple(range(r.start * p.group, r.stop * p.group) for r in share)
    deal = _Deal(ranks, needs.keys, share)
    q_deal = _Deal(ranks, needs.queries, q_share)
    k, v = (deal.whole_of(x) for x in (p.k, p.v))
    q = q_deal.whole_of(p.q)
    problem = replace(
        p,
        q=q,
        k=k,
        v=v,
        mask=needs.mask,
        scoring=_of_heads(p.scoring, q_share[ranks.rank]),
        sink=None if p.sink is None else p.sink[q_share[ranks.rank].start : q_share[ranks.rank].stop],
        offset=needs.offset,
    )
    return q_deal.rows_of(whole(problem, call.backend))


def _of_heads(scoring: Scoring, heads: range) -> Scoring:
    """The scoring of some of the query heads, renumbered from 0."""
    bias, mod = scoring.bias, scoring.score_mod
    cut = slice(heads.start, heads.stop)
    if isinstance(bias, ALiBi):
        bias = ALiBi(bias.slopes[cut])
    elif isinstance(bias, RelativeBias):
        bias = replace(bias, table=bias.table[cut])
    elif isinstance(bias, Tensor) and bias.shape[1] > 1:
        bias = bias[:, cut]
    if mod is None or not heads.start:
        return replace(scoring, bias=bias)
    return replace(scoring, bias=bias, score_mod=lambda s, b, h, q, k: mod(s, b, h + heads.start, q, k))


@dataclass(frozen=True)
class _Deal:
    """The all-to-all between all heads of a rank's positions and a rank's heads of all positions."""

    ranks: Ranks
    layout: Sharding
    share: tuple[range, ...]

    def whole_of(self, x: Tensor) -> Tensor:
        """(batch, heads, own positions, dim) → (batch, own heads, all positions, dim)."""
        return _ToHeads.apply(self, x)  # pyright: ignore[reportReturnType]

    def rows_of(self, x: Tensor) -> Tensor:
        """The inverse of `whole_of`."""
        return _ToRows.apply(self, x)  # pyright: ignore[reportReturnType]

    def to_heads(self, x: Tensor) -> Tensor:
        me, sizes, mine = self.ranks.rank, self.layout.sizes, self.share[self.ranks.rank]
        others = [rank for rank in range(self.ranks.size) if rank != me]
        lands = {r: x.new_empty(x.shape[0], len(mine), sizes[r], x.shape[3]) for r in others}
        sends = {r: x[:, self.share[r].start : self.share[r].stop] for r in others}
        self.ranks.swap(sends, lands).wait()
        found = x.new_empty(x.shape[0], len(mine), self.layout.length, x.shape[3])
        for rank in range(self.ranks.size):
            part = x[:, mine.start : mine.stop] if rank == me else lands[rank]
            found[:, :, self.layout.positions(rank, x.device)] = part
        return found

    def to_rows(self, x: Tensor) -> Tensor:
        me, own = self.ranks.rank, self.layout.sizes[self.ranks.rank]
        others = [rank for rank in range(self.ranks.size) if rank != me]
        lands = {r: x.new_empty(x.shape[0], len(self.share[r]), own, x.shape[3]) for r in others}
        sends = {r: x[:, :, self.layout.positions(r, x.device)] for r in others}
        self.ranks.swap(sends, lands).wait()
        lands[me] = x[:, :, self.layout.positions(me, x.device)]
        return torch.cat([lands[rank] for rank in range(self.ranks.size)], 1)


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, deal: _Deal, x: Tensor) -> Tensor:
        ctx.deal = deal
        return deal.to_heads(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.deal.to_rows(grad)


class _ToRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, deal: _Deal, x: Tensor) -> Tensor:
        ctx.deal = deal
        return deal.to_rows(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        # The output's gradient is sent first; those of q, k and v follow.
        agree(ctx.deal.ranks, "the backward pass of attention", {})
        return None, ctx.deal.to_heads(grad)
