"""The arithmetic behind one cell of each step, written out for one query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from regard.tracing.labels import printable
from regard.tracing.numerals import factor, short

if TYPE_CHECKING:
    from regard.tracing.result import Trace

__all__ = ["Worker"]

TERMS = 6


@dataclass(frozen=True)
class Worker:
    """Writes out one cell of any step: that of one query and of the key it attends to most."""

    trace: Trace
    query: int
    head: int
    batch: int

    def line(self, name: str) -> str:
        """The worked line of a step, or nothing where there is nothing to work out.

        >>> from regard.tracing import trace
        >>> steps = trace([[1, 0]], [[1, 0], [0, 1]], [[10, 0], [0, 10]], key_tokens=["hat", "bed"])
        >>> Worker(steps, query=0, head=0, batch=0).line("scores")
        'q0 · hat: 1×1 + 0×0 = 1'
        """
        write = getattr(self, f"_{name}", None)
        return write() if write is not None and self._weight_row().sum() > 0 else ""

    def _row(self, name: str, at: int) -> Tensor:
        head = self.head // self.trace.recipe.group if name in ("k", "v") else self.head
        return self.trace[name].at(self.batch, head)[at]

    def _weight_row(self) -> Tensor:
        return self._row("weights", self.query)

    @property
    def _key(self) -> int:
        return int(self._weight_row().argmax())

    @property
    def _pair(self) -> str:
        return f"{printable(self.trace.tokens[self.query])} · {printable(self.trace.key_tokens[self._key])}"

    def _cell(self, name: str) -> float:
        return float(self._row(name, self.query)[self._key])

    def _before(self, name: str) -> float:
        """The same cell one step earlier."""
        return self._cell(self.trace.names[self.trace.names.index(name) - 1])

    def _vector(self, name: str, token: str, source: str, at: int) -> str:
        matrix = self.trace.recipe.matrices.get(f"w_{name}")
        if matrix is None:
            return ""
        row = self._row(name, at)
        heads = self.head // self.trace.recipe.group if name != "q" else self.head
        column = matrix[:, heads * len(row)]
        return f"{printable(token)}, first number: {_products(self._row(source, at), column, float(row[0]))}"

    def _q(self) -> str:
        return self._vector("q", self.trace.tokens[self.query], "input", self.query)

    def _k(self) -> str:
        return self._vector("k", self.trace.key_tokens[self._key], self._source, self._key)

    def _v(self) -> str:
        return self._vector("v", self.trace.key_tokens[self._key], self._source, self._key)

    @property
    def _source(self) -> str:
        return "context" if "context" in self.trace else "input"

    def _scores(self) -> str:
        if not self.trace.recipe.dot:
            return f"{self._pair}: {short(self._cell('scores'))}"
        q, k = self._row("q", self.query), self._row("k", self._key)
        return f"{self._pair}: {_products(q, k, self._cell('scores'))}"

    def _scaled(self) -> str:
        recipe = self.trace.recipe
        by = f"/ {short(math.sqrt(recipe.root))}" if recipe.root else f"× {factor(recipe.scale)}"
        return f"{self._pair}: {short(self._before('scaled'))} {by} ≈ {short(self._cell('scaled'))}"

    def _biased(self) -> str:
        before, after = self._before("biased"), self._cell("biased")
        return f"{self._pair}: {short(before)} + {factor(after - before)} ≈ {short(after)}"

    def _capped(self) -> str:
        cap = short(self.trace.recipe.softcap or math.inf)
        inside = f"{short(self._before('capped'))} / {cap}"
        return f"{self._pair}: {cap} × tanh({inside}) ≈ {short(self._cell('capped'))}"

    def _modified(self) -> str:
        return f"{self._pair}: {short(self._before('modified'))} becomes {short(self._cell('modified'))}"

    def _masked(self) -> str:
        row = self._row("masked", self.query)
        seen = [
            printable(token) for token, s in zip(self.trace.key_tokens, row, strict=True) if s > -math.inf
        ]
        who = printable(self.trace.tokens[self.query])
        listed = ", ".join(seen) if len(seen) <= TERMS else f"{len(seen)} of {len(row)} keys"
        return f"{who} may look at {listed}"

    def _weights(self) -> str:
        logits = self._row(self.trace.names[self.trace.names.index("weights") - 1], self.query).tolist()
        mine = logits[self._key]
        sink = [] if self.trace.recipe.sink is None else [float(self.trace.recipe.sink[self.head])]
        seen = [s for s in (*logits, *sink) if s > -math.inf]
        # Large scores are shifted by the row's largest, as every implementation does: e^100 says nothing.
        shift = max(seen) if max(map(abs, seen)) > 12 else 0.0
        minus = f" after subtracting {short(shift)}" if shift else ""
        powers = _joined([f"e^{factor(s - shift)}" for s in seen])
        top, total = math.exp(mine - shift), math.fsum(math.exp(s - shift) for s in seen)
        ratio = f"e^{factor(mine - shift)} / ({powers}) ≈ {short(top)} / {short(total)}"
        return f"{self._pair}{minus}: {ratio} ≈ {short(self._cell('weights'))}"

    def _sink(self) -> str:
        left = float(self._row("sink", self.query))
        who = printable(self.trace.tokens[self.query])
        return f"{who}: 1 − {short(float(self._weight_row().sum()))} ≈ {short(left)}"

    def _output(self) -> str:
        weights = self._weight_row()
        seen = weights > 0
        heads = self.head // self.trace.recipe.group
        first = self.trace["v"].at(self.batch, heads)[:, 0]
        out = float(self._row("output", self.query)[0])
        who = printable(self.trace.tokens[self.query])
        return f"{who}, first number: {_products(weights[seen], first[seen], out)}"

    def _projected(self) -> str:
        joined = self._row(self.trace.names[-2], self.query)
        out = float(self._row("projected", self.query)[0])
        column = self.trace.recipe.matrices["w_o"][:, 0]
        return f"{printable(self.trace.tokens[self.query])}, first number: {_products(joined, column, out)}"


def _products(a: Tensor, b: Tensor, result: float) -> str:
    """a · b as a sum of products; = where the printed numbers are all exact, otherwise ≈."""
    left, right = a.tolist(), b.tolist()
    exact = all(x.is_integer() for x in (*left, *right))
    products = _joined([f"{factor(x)}×{factor(y)}" for x, y in zip(left, right, strict=True)])
    return f"{products} {'=' if exact else '≈'} {short(result)}"


def _joined(terms: Sequence[str]) -> str:
    """A sum, the middle of a long one left out."""
    if len(terms) > TERMS:
        terms = [*terms[: TERMS - 2], "…", terms[-1]]
    return " + ".join(terms)
