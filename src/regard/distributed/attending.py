"""The autograd function of attention over the keys of all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.distributed.agreement import agree
from regard.distributed.exchange import Keys, Return, Route
from regard.distributed.needs import Needs, visible
from regard.distributed.partial import Call, Grads, Merged, Piece
from regard.distributed.ranks import Ranks

__all__ = ["Work", "attend"]


@dataclass(frozen=True)
class Work:
    """One call on one rank: its tensors, the ranks, and the exchange."""

    call: Call
    ranks: Ranks
    needs: Needs
    how: str
    what: str = "attention"

    def route(self, k: Tensor, v: Tensor) -> Route:
        return Route(self.ranks, self.needs, self.how, k.detach(), v.detach())

    def pieces(self, keys: Keys) -> Iterator[tuple[Piece, Tensor, Tensor]]:
        """Each run of this rank's queries, with the keys that it may see."""
        start = 0
        for queries in self.needs.queries.shards[self.ranks.rank]:
            rows = range(start, start + len(queries))
            start += len(queries)
            at = visible(self.needs.mask, self.needs.placed(queries), keys.at)
            if at:
                yield Piece(rows, queries, at), *keys.part(at)


def attend(work: Work) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of this rank's queries, differentiable in all inputs that require grad."""
    p = work.call.problem
    return _Attend.apply(work, p.q, p.k, p.v, p.sink, *p.scoring.parameters())  # pyright: ignore


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, *rest: Tensor):
        merged = Merged(work.call)
        for arrival in work.route(k, v).arrivals():
            for keys in arrival:
                for piece, some_k, some_v in work.pieces(keys):
                    merged.add(piece, some_k, some_v)
        found = merged.finished()
        ctx.work = work
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, found.out, found.lse, sink, *rest)
        return found.out.to(q.dtype), found.lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None):
        work: Work = ctx.work
        agree(work.ranks, f"the backward pass of {work.what}", {})
        # Read the saved tensors here, so that a tensor that was written to raises instead of giving wrong
        # gradients.
        q, k, v, out, lse, sink, *rest = ctx.saved_tensors
        grads = Grads(work.call, out, lse, torch.zeros_like(out) if d_out is None else d_out, d_lse)
        route = work.route(k, v)
        back = Return(route, out.dtype)
        for arrival in route.arrivals():
            back.add([_through(work, grads, keys) for keys in arrival])
        back.settle()
        learned = (total.to(x.dtype) for total, x in zip(grads.parameters, rest, strict=True))
        d_sink = grads.sink()
        return (
            None,
            grads.q.to(q.dtype),
            back.k.to(k.dtype),
            back.v.to(v.dtype),
            None if d_sink is None or sink is None else d_sink.to(sink.dtype),
            *learned,
        )


def _through(work: Work, grads: Grads, keys: Keys) -> tuple[Keys, Tensor, Tensor]:
    """The gradients of some keys and values through all queries of this rank."""
    d_k, d_v = (torch.zeros_like(x, dtype=grads.out.dtype) for x in (keys.k, keys.v))
    for piece, k, v in work.pieces(keys):
        found = grads.add(piece, k, v)
        if found is not None:
            cut = slice(piece.keys.start - keys.at.start, piece.keys.stop - keys.at.start)
            d_k[:, :, cut] += found[0]
            d_v[:, :, cut] += found[1]
    return keys, d_k, d_v
