"""The interface to the engine: attention of some queries to some keys, and its gradients.

Only this file of `regard.distributed` calls the engine. A piece is a contiguous range of queries and a
contiguous range of keys; its positions count from its first key, and mask, bias and score_mod are shifted
accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.distributed.needs import moved
from regard.engine.autograd import attend
from regard.engine.backend import Backend, Upstream
from regard.engine.dispatch import choose, reference
from regard.engine.inputs import Options, readable_problem_of
from regard.engine.large_rows import are_large
from regard.engine.problem import Problem
from regard.engine.riders import NO_RIDERS, Streamed
from regard.engine.scoring import Place, Scoring
from regard.engine.sink import with_sink
from regard.engine.sums import add_exp, over_rows
from regard.engine.tiles import map_tiles
from regard.masks import Coverage, Mask
from regard.scores import ALiBi, Bias, RelativeBias
from regard.stats import Frame, MapTile

__all__ = [
    "Call",
    "Grads",
    "Merged",
    "Piece",
    "are_large",
    "cells_of",
    "lifted",
    "local_problem",
    "tiles_of",
    "whole",
]


def local_problem(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Problem:
    """Validate a rank's shards, without mask and dense bias, which belong to the whole sequence."""
    bias = None if isinstance(options.bias, Tensor) else options.bias
    return readable_problem_of(q, k, v, replace(options, mask=None, bias=bias, dropout=0.0))


@dataclass(frozen=True)
class _MovedBias(Bias):
    """Another bias evaluated at shifted positions."""

    of: Bias
    shift: int

    def tile(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.of.tile(q_pos + self.shift, k_pos + self.shift)

    def parameters(self) -> tuple[Tensor, ...]:
        return self.of.parameters()

    def accumulate(self, grads: tuple[Tensor, ...], ds: Tensor, q_pos: Tensor, k_pos: Tensor) -> None:
        self.of.accumulate(grads, ds, q_pos + self.shift, k_pos + self.shift)


def _moved_mod(score_mod: Callable[..., Tensor], shift: int) -> Callable[..., Tensor]:
    return lambda score, b, h, q, k: score_mod(score, b, h, q + shift, k + shift)


@dataclass(frozen=True)
class Piece:
    """Some queries of a rank, and some keys that it holds or received.

    `rows` are the queries among those of the rank, `queries` their indices in the sequence, `keys` the
    positions of the keys.
    """

    rows: range
    queries: range
    keys: range

    def of(self, call: Call, k: Tensor, v: Tensor) -> Problem | None:
        """The piece as a problem of the engine; None if the mask allows none of its pairs."""
        p, shift, first = call.problem, self.keys.start, self.queries.start + call.offset
        mask = call.mask
        if mask is not None:
            seen = mask.coverage((first, first + len(self.queries)), (self.keys.start, self.keys.stop))
            if seen is Coverage.EMPTY:
                return None
            mask = None if seen is Coverage.FULL else moved(mask, shift)
        wide = p.accumulate
        q = p.q.detach()[:, :, self.rows.start : self.rows.stop]
        return replace(
            p,
            # Partial outputs are float32, because half precision would round each of them before they are
            # added.
            **{name: x.to(wide) for name, x in (("q", q), ("k", k), ("v", v))},
            mask=mask,
            scoring=self._scoring(p.scoring, shift, call.bias_rows),
            sink=None,
            offset=first - shift,
        )

    def _scoring(self, scoring: Scoring, shift: int, bias_rows: str) -> Scoring:
        bias = scoring.bias
        if isinstance(bias, Tensor):
            rows = self.queries if bias_rows == "sequence" else self.rows
            bias = self.bias_part(bias.detach(), rows)
        elif bias is not None and shift and not isinstance(bias, ALiBi | RelativeBias):
            bias = _MovedBias(bias, shift)
        mod = scoring.score_mod
        return replace(scoring, bias=bias, score_mod=_moved_mod(mod, shift) if mod and shift else mod)

    def bias_part(self, bias: Tensor, rows: range) -> Tensor:
        """The piece's part of a dense (batch|1, heads|1, q|1, k|1) bias; a view."""
        if bias.shape[2] > 1:
            bias = bias[:, :, rows.start : rows.stop]
        return bias[..., self.keys.start : self.keys.stop] if bias.shape[3] > 1 else bias


@dataclass(frozen=True)
class Call:
    """One call on one rank: its own queries, keys and values, and the arguments that all ranks share.

    `bias_rows` says whether a dense bias has the rows of the whole sequence, or those of this rank.
    """

    problem: Problem
    mask: Mask | None
    offset: int
    bias_rows: str = "sequence"
    backend: str = "auto"

    @property
    def learns(self) -> bool:
        return any(x.requires_grad for x in self.problem.scoring.parameters())


class Merged:
    """Accumulates the output and log-sum-exp of a rank's rows over pieces, in float32 or better."""

    def __init__(self, call: Call) -> None:
        p = call.problem
        self.call = call
        self.out = p.q.new_zeros((*p.q.shape[:3], p.v.shape[-1]), dtype=p.accumulate)
        self.lse = p.q.new_full(p.q.shape[:3], -torch.inf, dtype=p.accumulate)

    def add(self, piece: Piece, k: Tensor, v: Tensor) -> None:
        """Add attention to more keys."""
        problem = piece.of(self.call, k, v)
        if problem is None:
            return
        with torch.no_grad():
            found = attend(problem, _backend(problem, self.call.backend))
        at = (slice(None), slice(None), slice(piece.rows.start, piece.rows.stop))
        out, lse = self.out[at], self.lse[at]
        both = add_exp(lse, found.lse)
        # Rows that have seen nothing yet: -inf - -inf is NaN.
        safe = both.masked_fill(both == -torch.inf, 0.0)
        for x, weight in ((out, (lse - safe).exp()), (found.out, (found.lse - safe).exp())):
            x.mul_(weight[..., None])
        out.add_(found.out)
        lse.copy_(both)

    def finished(self) -> Streamed:
        """The result with the sink, which is applied once per row."""
        sink = self.call.problem.sink
        plain = Streamed(self.out, self.lse)
        return plain if sink is None else with_sink(sink.detach(), plain, self.out.dtype)


def _backend(problem: Problem, name: str) -> Backend:
    chosen = choose(problem, name).backend
    # On a GPU PyTorch's kernels do not always return the log-sum-exp.
    return chosen if chosen.hides_lse(problem) is None else reference()


@dataclass
class Grads:
    """Accumulates the gradients of a rank's queries, its sink and its scoring parameters over pieces."""

    call: Call
    out: Tensor
    lse: Tensor
    d_out: Tensor
    d_lse: Tensor | None

    def __post_init__(self) -> None:
        p = self.call.problem
        wide = p.accumulate
        self.d_out = self.d_out.to(wide)
        self.d_lse = None if self.d_lse is None else self.d_lse.to(wide)
        self.mixed = (self.d_out * self.out).sum(-1)
        self.q = torch.zeros_like(p.q, dtype=wide)
        # float64 for sums over many pairs, whose terms nearly cancel; a dense bias has one entry per pair.
        bias = p.scoring.bias
        self.parameters = [
            torch.zeros_like(x, dtype=wide if x is bias else torch.float64) for x in p.scoring.parameters()
        ]

    def add(self, piece: Piece, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
        """The gradients of some keys and values through a piece; None if the mask allows none of its
        pairs."""
        problem = piece.of(self.call, k, v)
        if problem is None:
            return None
        at = (slice(None), slice(None), slice(piece.rows.start, piece.rows.stop))
        out, lse, d_out, mixed = (x[at] for x in (self.out, self.lse, self.d_out, self.mixed))
        alone = self.d_lse is None and not self.call.learns and not problem.q.is_cuda
        up = Upstream(d_out, None if self.d_lse is None else self.d_lse[at], mixed=mixed)
        found, chosen = None, choose(problem, "auto").backend if alone else reference()
        if chosen.has_backward and self.call.backend in ("auto", chosen.name):
            result = Streamed(out.contiguous(), lse.contiguous())
            found = chosen.backward(problem, NO_RIDERS, result, up)
        if found is None:
            found = reference().backward(problem, NO_RIDERS, Streamed(out, lse), up)
        if found is None:
            raise RuntimeError("the reference backend must compute every gradient")
        self._learn(piece, found.parameters)
        self.q[at].add_(found.q)
        return found.k, found.v

    def _learn(self, piece: Piece, found: tuple[Tensor, ...]) -> None:
        """Add a piece's gradients of the scoring parameters; a fused backward returns none."""
        bias = self.call.problem.scoring.bias
        for index, (total, grad) in enumerate(zip(self.parameters, found, strict=False)):
            if isinstance(bias, Tensor) and index == len(found) - 1:
                rows = piece.queries if self.call.bias_rows == "sequence" else piece.rows
                total = piece.bias_part(total, rows)
            total.add_(grad)

    def sink(self) -> Tensor | None:
        """The gradient of the sink, which has a weight once per row, independent of the pieces."""
        sink = self.call.problem.sink
        if sink is None:
            return None
        weight = (sink.detach().to(self.lse.dtype)[:, None] - self.lse).exp()
        delta = self.mixed if self.d_lse is None else self.mixed - self.d_lse
        return -over_rows(weight * delta)


def tiles_of(
    piece: Piece, call: Call, k: Tensor, v: Tensor, lse: Tensor, frame: Frame, **how: Any
) -> Iterator[MapTile]:
    """The exact tiles of a piece, with indices within the piece; `lse` covers the rank's rows, over all
    keys."""
    problem = piece.of(call, k, v)
    if problem is None:
        return iter(())
    return map_tiles(problem, lse[:, :, piece.rows.start : piece.rows.stop].contiguous(), frame, **how)


def lifted(call: Call) -> Call:
    """The call with float64 scores and without values, for rows of large scores."""
    p = call.problem
    wide = replace(p, q=p.q.detach().double(), k=p.k.detach().double(), v=p.k[..., :0].detach().double())
    return replace(call, problem=wide)


def cells_of(call: Call, q: Tensor, k: Tensor, at: Place, bias: Tensor | None) -> Tensor:
    """The scores of selected rows and columns, in the dtype of sums; `at` is their place in the map."""
    scoring, wide = call.problem.scoring, call.problem.accumulate
    with torch.no_grad():
        parameters = tuple(x.to(wide) for x in scoring.score.parameters())
        s = scoring.raw(q.to(wide).flatten(0, 1), k.to(wide).flatten(0, 1), parameters)
        if bias is None:
            bias = scoring.bias_tile(at)
        s = scoring.modify(s.view(*q.shape[:3], k.shape[2]), bias, at)
        return s if call.mask is None else s.masked_fill(~at.allowed(call.mask), -torch.inf)


def whole(problem: Problem, backend: str) -> Tensor:
    """The output of a complete problem, computed and differentiated by the engine."""
    return attend(problem, _backend(problem, backend)).out
