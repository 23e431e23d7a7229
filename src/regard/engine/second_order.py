"""Second derivatives: the backward pass in torch operations that autograd can differentiate.

Each block of queries is computed densely over the keys that it visits, differentiated twice and freed, so
memory grows with the keys of one block. Derivatives of third and higher order keep every block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import torch
from torch import Tensor

from regard.engine.dropout import dropped
from regard.engine.finite import finite
from regard.engine.parts import Part, Tile, parts
from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.schedule import Row
from regard.errors import ScoreError
from regard.scores import Bias

__all__ = ["Inputs", "backward_twice"]


@dataclass(frozen=True)
class Inputs:
    """The tensors with respect to which a call is differentiated."""

    q: Tensor
    k: Tensor
    v: Tensor
    sink: Tensor | None
    columns: Tensor | None
    parameters: tuple[Tensor, ...]

    def all(self) -> tuple[Tensor | None, ...]:
        return (self.q, self.k, self.v, self.sink, self.columns, *self.parameters)


def backward_twice(
    problem: Problem,
    inputs: Inputs,
    result: Streamed,
    up: Sequence[Tensor | None],
    given: Sequence[Tensor | None],
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Differentiate a backward pass: the gradients of its inputs and of its upstream gradients.

    `up` are the gradients of out, lse, columns and entropy that it received, and `given` are the upstream
    gradients of its results, in the order of `Inputs.all`.
    """
    dtype = problem.accumulate
    own, up = _leaves(problem, inputs, dtype), [_leaf(x, dtype) for x in up]
    problem = _with_leaves(problem, own)
    wanted = (*own.all(), *up)
    total: list[Tensor | None] = [None] * len(wanted)
    dirty = problem.mask is not None and not finite(problem.q, problem.k, problem.v)
    for part in parts(problem):
        for row in part.rows():
            block = _Block(part, row, own, result if dirty else None)
            found = _differentiated(block, own, up, given, wanted)
            total = [_sum(a, b) for a, b in zip(total, found, strict=True)]
    return total[: len(own.all())], total[len(own.all()) :]


def _leaves(problem: Problem, inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The leaves: the tensors to differentiate by, in the dtype of the sums."""
    q, k, v, sink, columns, *mine = (_leaf(x, dtype) for x in inputs.all())
    if not _replaceable(problem.scoring.bias):
        # Such a bias computes its tiles from its parameters only.
        raw = problem.scoring.bias_parameters()
        mine = [*mine[: len(mine) - len(raw)], *raw]
    return Inputs(q, k, v, sink, columns, tuple(mine))  # pyright: ignore[reportArgumentType]


def _leaf(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A leaf; for a third derivative it stays connected to its source."""
    if x is None:
        return None
    if torch.is_grad_enabled() and x.requires_grad:
        # A view, because the same tensor may be query, key and value, and needs a gradient for each.
        return x.to(dtype).view_as(x)
    return x.detach().to(dtype).requires_grad_()


def _replaceable(bias: Tensor | Bias | None) -> bool:
    """Whether a bias can be rebuilt from other parameters: it is a tensor, or a dataclass with its parameters
    as fields."""
    if not isinstance(bias, Bias) or not bias.parameters():
        return True
    held = {id(getattr(bias, f.name)) for f in fields(bias)} if is_dataclass(bias) else set()
    return all(id(x) in held for x in bias.parameters())


def _with_leaves(problem: Problem, own: Inputs) -> Problem:
    """The problem rebuilt from the leaves."""
    scoring, bias = problem.scoring, problem.scoring.bias
    if isinstance(bias, Tensor):
        scoring = replace(scoring, bias=own.parameters[-1])
    elif bias is not None and not _replaceable(bias):
        _check_graph(bias)
    elif bias is not None and bias.parameters():
        given = bias.parameters()
        new = dict(zip(map(id, given), own.parameters[-len(given) :], strict=True))
        names = {f.name: id(getattr(bias, f.name)) for f in fields(bias)}  # pyright: ignore[reportArgumentType]
        scoring = replace(scoring, bias=replace(bias, **{n: new[x] for n, x in names.items() if x in new}))  # pyright: ignore
    return replace(problem, q=own.q, k=own.k, v=own.v, sink=own.sink, scoring=scoring)


def _check_graph(bias: Bias) -> None:
    """Raise if a user's bias cannot be differentiated as often as requested."""
    name = type(bias).__name__
    at = torch.zeros(1, dtype=torch.int64, device=bias.parameters()[0].device)
    with torch.enable_grad():
        tile = bias.tile(at, at)
    if any(x.requires_grad for x in bias.parameters()) and not tile.requires_grad:
        raise ScoreError(
            f"{name}.tile returns a tensor without a graph, so its parameters have no gradient of a "
            "gradient; make the tile by torch operations, or leave out create_graph=True."
        )
    if torch.is_grad_enabled():
        raise ScoreError(
            f"{name} is no dataclass with its parameters as fields, so it has no derivative of third order; "
            "make it one, or ask for two derivatives."
        )


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _differentiated(
    block: _Block,
    own: Inputs,
    up: Sequence[Tensor | None],
    given: Sequence[Tensor | None],
    wanted: Sequence[Tensor | None],
) -> Sequence[Tensor | None]:
    """The contribution of one block of queries to the gradients of `wanted`."""
    deeper = torch.is_grad_enabled()
    with torch.enable_grad():
        pairs = [(x, block.queries(y)) for x, y in zip(block.outputs(), up, strict=True) if y is not None]
        value = torch.stack([(x * y).sum() for x, y in pairs if x is not None]).sum()
        first = zip(_grad(value, own.all(), create_graph=True), given, strict=True)
        terms = [(a * b.to(a.dtype)).sum() for a, b in first if a is not None and b is not None]
        if not any(term.requires_grad for term in terms):
            return [None] * len(wanted)
        return _grad(torch.stack(terms).sum(), wanted, create_graph=deeper)


def _grad(value: Tensor, by: Sequence[Tensor | None], create_graph: bool) -> list[Tensor | None]:
    """The gradients of a scalar by some tensors; None for tensors that it doesn't depend on."""
    sources = [x for x in by if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(value, sources, create_graph=create_graph, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in by]


class _Block:
    """One block of queries, computed densely over the keys that it visits."""

    def __init__(self, part: Part, row: Row, own: Inputs, dirty: Streamed | None) -> None:
        self.part, self.row, self.own = part, row, own
        self.tiles = list(part.tiles(row))
        # The rows that attended to NaN or inf; for all other rows these are replaced below.
        self.bad = None if dirty is None else self.queries(_unusual(dirty)).bool()

    def queries(self, x: Tensor) -> Tensor:
        """These rows of a (batch, heads, q, …) tensor."""
        return self.part.queries(x if x.ndim == 4 else x[..., None], self.row.queries)

    def keys(self, x: Tensor) -> Tensor:
        """The visited keys of a (batch, kv_heads, k, …) tensor."""
        x = self.part.keys(x)
        seen = [x[:, tile.keys.start : tile.keys.stop] for tile in self.tiles]
        x = torch.cat(seen, 1) if seen else x[:, :0]
        return x if self.bad is None else x.nan_to_num(0.0, 0.0, 0.0)

    def outputs(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """The output, log-sum-exp, columns and entropy of each row."""
        s = torch.cat([self._empty(), *self._scores()], -1)
        edge = self._edge(s)
        top = torch.cat([s, edge], -1).amax(-1, keepdim=True).detach()
        shift = top.masked_fill(top == -torch.inf, 0.0)
        e = (s - shift).exp()
        total = e.sum(-1, keepdim=True) + (edge - shift).exp()
        blind = total == 0
        # log 0 has no gradient. A row with nothing to attend to is constant, so use any number.
        total = total.masked_fill(blind, 1.0)
        w = self._seen_only(e / total)
        lse = shift + total.log()
        distance = (s - shift).masked_fill(s == -torch.inf, 0.0)
        entropy = w.sum(-1, keepdim=True) * total.log() - (w * distance).sum(-1, keepdim=True)
        columns = None if self.own.columns is None else w @ self.keys(self.own.columns)
        return self._kept(w) @ self.keys(self.own.v), lse, columns, entropy

    def _empty(self) -> Tensor:
        rows = self.part.problem.group * len(self.row.queries)
        return self.own.q.new_zeros(self.part.stacks, rows, 0)

    def _edge(self, s: Tensor) -> Tensor:
        """The score of the sink, or -inf."""
        p = self.part.problem
        if self.own.sink is None:
            return s.new_full((*s.shape[:2], 1), -torch.inf)
        return self.queries(self.own.sink[None, :, None, None].expand(p.batch, -1, p.q_len, -1))

    def _scores(self) -> Iterator[Tensor]:
        part, scoring = self.part, self.part.problem.scoring
        q = part.scaled(self.queries(self.own.q))
        k = part.keys(self.own.k)
        parameters = self.own.parameters[: len(scoring.score.parameters())]
        for tile in self.tiles:
            yield self._tile(tile, q, k[:, tile.keys.start : tile.keys.stop], parameters)

    def _tile(self, tile: Tile, q: Tensor, k: Tensor, parameters: tuple[Tensor, ...]) -> Tensor:
        part, scoring = self.part, self.part.problem.scoring
        hidden = self.bad is not None and tile.blocked is not None
        if hidden:
            # Zero gradients must not meet NaN or inf: 0 * NaN is NaN.
            q, k = (x.nan_to_num(0.0) for x in (q, k))
        s = torch.bmm(q, k.mT) if scoring.score.is_dot else scoring.raw(q, k, parameters)
        if hidden and self.bad is not None:
            s = s.masked_fill(self.bad, torch.nan)
        bias = scoring.bias_tile(tile.place)
        four = scoring.modify(part.four(s), None if bias is None else bias.to(s.dtype), tile.place)
        if tile.blocked is not None:
            four = four.masked_fill(tile.blocked, -torch.inf)
        return four.reshape(s.shape)

    def _seen_only(self, w: Tensor) -> Tensor:
        """Weights, with 0 for masked keys in rows whose weights are NaN."""
        if self.bad is None:
            return w
        shown = [
            x if tile.blocked is None else self.part.four(x).masked_fill(tile.blocked, 0.0).view(x.shape)
            for x, tile in self._pieces(w)
        ]
        return torch.cat([w[..., :0], *shown], -1)

    def _kept(self, w: Tensor) -> Tensor:
        """Weights after dropout, by the same draw as in the forward pass."""
        if not self.part.problem.dropout:
            return w
        kept = [x * dropped(self.part, tile, x) for x, tile in self._pieces(w)]
        return torch.cat([w[..., :0], *kept], -1)

    def _pieces(self, w: Tensor) -> Iterator[tuple[Tensor, Tile]]:
        """The weights as tiles."""
        widths = [len(tile.keys) for tile in self.tiles]
        return zip(w.split(widths, -1) if widths else (), self.tiles, strict=True)


def _unusual(result: Streamed) -> Tensor:
    """1 for rows whose output or log-sum-exp is NaN or inf, except dead rows."""
    odd = ~result.out.isfinite().all(-1) | result.lse.isnan() | (result.lse == torch.inf)
    return odd.to(result.lse.dtype)
