"""The backward pass: recomputes each tile from the log-sum-exp of its rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.backend import Gradients, Upstream
from regard.engine.dropout import dropped
from regard.engine.finite import finite
from regard.engine.gemm import bmm
from regard.engine.parts import Part, Tile, parts
from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.schedule import Row
from regard.engine.sums import over_rows

__all__ = ["backward"]


def backward(problem: Problem, columns: Tensor | None, result: Streamed, up: Upstream) -> Gradients:
    """Compute all gradients. Rider columns are appended to the values."""
    if columns is None or up.columns is None or result.columns is None:
        return _backward(problem, result, up)
    wide = replace(problem, v=torch.cat([problem.v, columns.to(problem.v.dtype)], -1))
    out, d_out = result.out, up.out
    joined = replace(result, out=torch.cat([out, result.columns.to(out.dtype)], -1))
    grads = _backward(wide, joined, replace(up, out=torch.cat([d_out, up.columns.to(out.dtype)], -1)))
    dv, d_columns = grads.v.split([problem.v.shape[-1], columns.shape[-1]], -1)
    return replace(grads, v=dv, columns=d_columns.to(columns.dtype))


def _backward(problem: Problem, result: Streamed, up: Upstream) -> Gradients:
    """Recompute each tile from the log-sum-exp of its rows; nothing of size q x k is stored.

    The gradient of a score is w_ij (d_out_i . v_j - delta_i), where delta collects all terms that are the
    same for a whole row; a gradient of the entropy adds -w_ij (1 + log w_ij) d_entropy_i. If a score or a
    bias has parameters, the part d_out_i . out_i of delta is streamed: the rounding of out_i is the same for
    a whole row, so sums over many rows, such as the gradient of ALiBi's slopes, would accumulate it. It is
    streamed too if out_i was rounded to half precision: a difference of two terms of its size is left.
    """
    dtype = problem.accumulate
    mixed = (up.out.to(dtype) * result.out.to(dtype)).sum(-1) if up.mixed is None else up.mixed
    delta = torch.zeros_like(mixed)
    if up.lse is not None:
        delta = delta - up.lse.to(dtype)
    weight = None if problem.sink is None else (problem.sink.to(dtype)[:, None] - result.lse).exp()
    mass = torch.ones_like(mixed) if weight is None else 1.0 - weight
    if up.entropy is not None and result.entropy is not None:
        delta = delta - up.entropy.to(dtype) * (mass - result.entropy)
    rounded = result.out.dtype != dtype
    streams = up.mixed is None and (rounded or bool(problem.scoring.parameters()))
    own = delta if streams else mixed + delta
    dq = torch.empty_like(problem.q)
    dk, dv = torch.empty_like(problem.k), torch.empty_like(problem.v)
    parameters = tuple(_sums_for(x, problem) for x in problem.scoring.parameters())
    # A dead row must get weight exp(s - inf) = 0 everywhere, not exp(-inf + inf).
    lse = result.lse.masked_fill(result.lse == -torch.inf, torch.inf)
    dirty = problem.mask is not None and not finite(problem.q, problem.k, problem.v)
    for part in parts(problem):
        back = _Backward(part, lse, own, mixed if streams else None, weight, up, parameters, dirty)
        for row in part.rows():
            part.put(dq, row.queries, back.run(row))
        for target, value in ((dk, back.dk), (dv, back.dv)):
            box = part.box(target)
            box.copy_(value.view(box.shape))
    d_sink = None
    if problem.sink is not None and weight is not None:
        d_sink = -over_rows(weight * (mixed + delta)).to(problem.sink.dtype)
    final = tuple(g.to(x.dtype) for g, x in zip(parameters, problem.scoring.parameters(), strict=True))
    return Gradients(dq, dk, dv, d_sink, parameters=final)


def _sums_for(parameter: Tensor, problem: Problem) -> Tensor:
    """Zeros to accumulate a parameter's gradient in; float64, unless every pair has its own entry."""
    pairs = (problem.batch, problem.heads, problem.q_len, problem.k_len)
    shared = tuple(parameter.shape) != pairs
    return torch.zeros_like(parameter, dtype=torch.float64 if shared else problem.accumulate)


class _Backward:
    """The backward pass of one part, block by block; sums into dk and dv in the order of the schedule."""

    def __init__(
        self,
        part: Part,
        lse: Tensor,
        delta: Tensor,
        mixed: Tensor | None,
        sink: Tensor | None,
        up: Upstream,
        parameters: tuple[Tensor, ...],
        dirty: bool,
    ) -> None:
        p = part.problem
        self.part, self.lse, self.delta, self.sink = part, lse, delta, sink
        # Where these rows' d_out . out goes when it is streamed.
        self.mixed = mixed
        self.up, self.dirty = up, dirty
        own = len(p.scoring.score.parameters())
        self.score_grads, self.bias_grads = parameters[:own], parameters[own:]
        self.k, self.v = part.keys(p.k), part.keys(p.v)
        self.dk, self.dv = torch.zeros_like(self.k), torch.zeros_like(self.v)
        self.buffer = part.buffer()

    def run(self, row: Row) -> Float[Tensor, "stacks rows dim"]:
        part, p = self.part, self.part.problem
        q = part.scaled(part.queries(p.q, row.queries))
        lse, delta = (part.queries(x[..., None], row.queries) for x in (self.lse, self.delta))
        d_out = part.queries(self.up.out, row.queries)
        d_entropy = None if self.up.entropy is None else part.queries(self.up.entropy[..., None], row.queries)
        dq = torch.zeros_like(q)
        share = None
        if self.mixed is not None:
            mixed, share = self._mixed(row, q, lse, d_out)
            part.put(self.mixed, row.queries, mixed)
            delta = delta + mixed
        for tile in part.tiles(row):
            keys = slice(tile.keys.start, tile.keys.stop)
            q_tile, k, v = self._inputs(q, tile)
            log_weights = part.scores(q_tile, k, tile, self.buffer).sub_(lse)
            factor = None if d_entropy is None else self._entropy_factor(log_weights, d_entropy)
            weights = log_weights.exp_()
            if share is not None:
                weights *= share
            if self.dirty and tile.blocked is not None:
                # A row that attended to NaN has lse NaN, and so have its weights, masked ones included.
                part.four(weights).masked_fill_(tile.blocked, 0.0)
            d_weights = bmm(d_out, v.transpose(1, 2))
            mixed = weights
            if p.dropout:
                kept = dropped(part, tile, weights)
                d_weights *= kept
                mixed = weights * kept
            self.dv[:, keys] += bmm(mixed.transpose(1, 2), d_out)
            if factor is not None:
                d_weights += factor
            ds = d_weights.sub_(delta).mul_(weights)
            if tile.blocked is not None:
                part.four(ds).masked_fill_(tile.blocked, 0.0)
            d_q, d_k = self._through_score(q_tile, k, ds, tile)
            dq += d_q
            self.dk[:, keys] += d_k
        return dq * p.scoring.scale if p.scoring.score.is_dot else dq

    def _entropy_factor(self, log_weights: Tensor, d_entropy: Tensor) -> Tensor:
        """The entropy's gradient with respect to each weight: -(log w + 1) times the upstream gradient."""
        factor = (log_weights + 1.0).mul_(-d_entropy)
        if not self.part.problem.scoring.linear:
            # A bias or score_mod may say -inf, and 0 * inf is NaN.
            factor.masked_fill_(log_weights == -torch.inf, 0.0)
        return factor

    def _inputs(self, q: Tensor, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
        """The q, k and v of a tile, with NaN and inf replaced if its mask may hide them."""
        keys = slice(tile.keys.start, tile.keys.stop)
        k, v = self.k[:, keys], self.v[:, keys]
        if not self.dirty or tile.blocked is None:
            return q, k, v
        # Zero weights must not meet NaN or inf: 0 * NaN is NaN. Infinite q and k become the largest finite
        # numbers, because a score such as tanh may be finite there.
        return q.nan_to_num(), k.nan_to_num(), v.nan_to_num(0.0, 0.0, 0.0)

    def _mixed(
        self, row: Row, q: Tensor, lse: Tensor, d_out: Tensor
    ) -> tuple[Float[Tensor, "stacks rows 1"], Float[Tensor, "stacks rows 1"]]:
        """The sum over keys of w_ij (d_out_i . v_j) for exact weights, and the factor that makes weights
        exact.

        The rounding error of a row's lse scales all of its weights, including the sink's, by one factor,
        which is their sum. The complement 1 - w of the sink's weight would not do: it loses all digits if the
        sink takes nearly all weight.
        """
        part = self.part
        total, mass = (torch.zeros_like(lse, dtype=torch.float64) for _ in range(2))
        for tile in part.tiles(row):
            q_tile, k, v = self._inputs(q, tile)
            weights = part.scores(q_tile, k, tile, self.buffer).sub_(lse).exp_()
            if self.dirty and tile.blocked is not None:
                part.four(weights).masked_fill_(tile.blocked, 0.0)
            mass += weights.sum(-1, keepdim=True, dtype=torch.float64)
            if part.problem.dropout:
                weights *= dropped(part, tile, weights)
            products = weights.mul_(bmm(d_out, v.transpose(1, 2)))
            if tile.blocked is not None:
                # A product of values behind the mask may overflow, and 0 * inf is NaN.
                part.four(products).masked_fill_(tile.blocked, 0.0)
            total += products.sum(-1, keepdim=True, dtype=torch.float64)
        whole = mass if self.sink is None else mass + part.queries(self.sink[..., None], row.queries)
        share = whole.reciprocal().masked_fill_(mass == 0, 0.0)
        return (total * share).to(lse.dtype), share.to(lse.dtype)

    def _through_score(self, q: Tensor, k: Tensor, ds: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        """The gradients of (scaled) q and k and of the parameters, from the gradient of a tile's scores."""
        if self.part.problem.scoring.linear:
            return bmm(ds, k), bmm(ds.transpose(1, 2), q)
        return self._through_autograd(q, k, ds, tile)

    def _through_autograd(self, q: Tensor, k: Tensor, ds: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        part, scoring = self.part, self.part.problem.scoring
        bias = scoring.bias_tile(tile.place)
        with torch.enable_grad():
            q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
            own = tuple(x.detach().to(q.dtype).requires_grad_() for x in scoring.score.parameters())
            s = part.four(bmm(q, k.transpose(1, 2)) if scoring.score.is_dot else scoring.raw(q, k, own))
            if bias is not None:
                # Expand to the tile's size: autograd would sum over shared axes in an order that depends on
                # the number of threads.
                bias = bias.detach().to(q.dtype).expand_as(s).requires_grad_()
            s = scoring.modify(s, bias, tile.place)
        if not s.requires_grad:
            # A score_mod may ignore the score, and autograd refuses to differentiate a constant.
            return torch.zeros_like(q), torch.zeros_like(k)
        leaves = [q, k, *own, *([] if bias is None else [bias])]
        d_q, d_k, *rest = torch.autograd.grad(
            s, leaves, part.four(ds), allow_unused=True, materialize_grads=True
        )
        for total, grad in zip(self.score_grads, rest, strict=False):
            total += grad
        if bias is not None and self.bias_grads:
            scoring.accumulate_bias(self.bias_grads, rest[-1], tile.place)
        return d_q, d_k
