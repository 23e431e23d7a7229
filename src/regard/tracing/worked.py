"""The arithmetic behind one cell of each step, written out for one query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from regard.tracing import lines
from regard.tracing.labels import printable
from regard.tracing.numerals import short, value_of
from regard.tracing.steps import Steps
from regard.tracing.sums import TERMS, dot, equation

__all__ = ["CELLS", "Worker"]

# Steps with one number per pair of a query and a key.
CELLS = ("scores", "scaled", "biased", "capped", "modified", "masked", "weights")


@dataclass(frozen=True)
class Worker:
    """Writes out one cell of any step: that of one query and its heaviest key."""

    trace: Steps
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
        if not self._weight_row().sum() > 0:
            return ""
        if name in CELLS and name != "masked":
            cell = self.cell(name, self._key)
            return cell and f"{self._pair}{' ' if cell.startswith(lines.AFTER) else ': '}{cell}"
        write = getattr(self, f"_{name.replace(' ', '_')}", None)
        return "" if write is None else write()

    def cell(self, name: str, key: int) -> str:
        """How one key's number in a step of `CELLS` follows from the step before, or nothing.

        >>> from regard.tracing import example
        >>> Worker(example("three"), query=0, head=0, batch=0).cell("scaled", 1)
        '0 / √2 ≈ 0'
        """
        recipe, value = self.trace.recipe, self._cell(name, key)
        if name == "scores":
            return self._score(key, value)
        before = self.trace.names.index(name) - 1
        if before < 0 or "key" not in self.trace.steps[before].axes:
            return ""
        score = self._cell(self.trace.names[before], key)
        match name:
            case "scaled":
                return lines.scaled(score, value, recipe.scale, recipe.root)
            case "biased":
                return lines.biased(score, value)
            case "capped":
                return lines.capped(score, value, recipe.softcap or math.inf)
            case "modified":
                return lines.modified(score, value)
            case "masked":
                return lines.masked(score, value)
            case _:
                return self._softmax.line(key, value)

    def _score(self, key: int, value: float) -> str:
        if not self.trace.recipe.dot:
            return short(value)
        if "q" not in self.trace:
            return ""
        return dot(self._row("q", self.query).tolist(), self._row("k", key).tolist(), value)

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

    def _cell(self, name: str, key: int) -> float:
        return float(self._row(name, self.query)[key])

    @cached_property
    def _softmax(self) -> lines.Softmax:
        before, sink = self.trace.names[self.trace.names.index("weights") - 1], self.trace.recipe.sink
        return lines.Softmax(
            self._row(before, self.query).tolist(), None if sink is None else float(sink[self.head])
        )

    def _vector(self, name: str, step: str, token: str, source: str, at: int) -> str:
        matrix = self.trace.recipe.matrices.get(f"w_{name}")
        if matrix is None or step not in self.trace:
            return ""
        row = self._row(step, at)
        head = self.head // self.trace.recipe.group if name != "q" else self.head
        column = matrix[:, head * len(row)].tolist()
        made = dot(self._row(source, at).tolist(), column, float(row[0]), self._bias(name, head * len(row)))
        return f"{printable(token)}, first number: {made}"

    def _bias(self, name: str, column: int) -> float:
        bias = self.trace.recipe.matrices.get(f"b_{name}")
        return 0.0 if bias is None else float(bias[column])

    def _q(self) -> str:
        if "q projected" in self.trace:
            return self._turned("q", self.trace.tokens[self.query], self.query)
        return self._vector("q", "q", self.trace.tokens[self.query], "input", self.query)

    def _k(self) -> str:
        if "k projected" in self.trace:
            return self._turned("k", self.trace.key_tokens[self._key], self._key)
        return self._vector("k", "k", self.trace.key_tokens[self._key], self._source, self._key)

    def _v(self) -> str:
        return self._vector("v", "v", self.trace.key_tokens[self._key], self._source, self._key)

    def _q_projected(self) -> str:
        return self._vector("q", "q projected", self.trace.tokens[self.query], "input", self.query)

    def _k_projected(self) -> str:
        return self._vector("k", "k projected", self.trace.key_tokens[self._key], self._source, self._key)

    def _turned(self, name: str, token: str, at: int) -> str:
        """The arithmetic of the first number of a rotated vector, which belongs to the fastest pair."""
        before, after = self._row(f"{name} projected", at).tolist(), self._row(name, at).tolist()
        for other in (len(before) // 2, 1):
            a, b, c, d = before[0], before[other], after[0], after[other]
            if math.isclose(math.hypot(a, b), math.hypot(c, d), rel_tol=1e-4) and math.hypot(a, b):
                turn = math.atan2(d, c) - math.atan2(b, a)
                made = dot([a, b], [math.cos(turn), -math.sin(turn)], c)
                return f"{printable(token)}, first number and number {other} turn by position {at}: {made}"
        return ""

    @property
    def _source(self) -> str:
        return "context" if "context" in self.trace else "input"

    def _masked(self) -> str:
        row = self._row("masked", self.query)
        seen = [
            printable(token) for token, s in zip(self.trace.key_tokens, row, strict=True) if s > -math.inf
        ]
        who = printable(self.trace.tokens[self.query])
        listed = ", ".join(seen) if len(seen) <= TERMS else f"{len(seen)} of {len(row)} keys"
        return f"{who} may look at {listed}"

    def _sink(self) -> str:
        taken = float(self._weight_row().sum())
        who = printable(self.trace.tokens[self.query])

        def left(digits: int) -> tuple[str, float]:
            return f"1 − {short(taken, digits)}", 1 - value_of(taken, digits)

        return f"{who}: {equation(left, float(self._row('sink', self.query)))}"

    def _output(self) -> str:
        weights = self._weight_row()
        seen = weights > 0
        heads = self.head // self.trace.recipe.group
        first = self.trace["v"].at(self.batch, heads)[:, 0]
        out = float(self._row("output", self.query)[0])
        who = printable(self.trace.tokens[self.query])
        return f"{who}, first number: {dot(weights[seen].tolist(), first[seen].tolist(), out)}"

    def _projected(self) -> str:
        joined = self._row(self.trace.names[-2], self.query).tolist()
        out = float(self._row("projected", self.query)[0])
        column = self.trace.recipe.matrices["w_o"][:, 0].tolist()
        bias = self._bias("o", 0)
        return f"{printable(self.trace.tokens[self.query])}, first number: {dot(joined, column, out, bias)}"
