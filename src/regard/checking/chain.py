"""Computes each step from the others: unrounded, from printed numbers, and from their ranges."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from regard.checking.arithmetic import Exact, Matrix, Range, Ranges, transpose
from regard.checking.example import Example, Scale
from regard.checking.names import GIVEN

__all__ = ["Chain"]


class Chain:
    """The steps of one example, each computed in three ways.

    `exact` starts from the first tables and rounds nothing. `linked` starts from the printed numbers of the
    nearest printed step, as one does by hand. `ranges` allows these numbers to be anywhere within their
    printed digits.

    >>> from regard.checking.reading import read
    >>> chain = Chain(read("scores: 1 0 1\\nweights: 0.4 0.2 0.4\\nv: 10 0 5\\noutput: 6.0")[0])
    >>> [round(x, 4) for x in chain.exact("output")[0]], [round(x, 4) for x in chain.linked("output")[0]]
    ([6.3348], [6.0])
    """

    def __init__(self, example: Example) -> None:
        self.example = example
        self._memory: dict[tuple[str, str], Any] = {}

    @cached_property
    def scale(self) -> Scale | None:
        """The scale: as printed, else 1/√d if q or k is printed, else None."""
        if self.example.scale is not None:
            return self.example.scale
        dim = self.example.dim
        return None if dim is None else Scale.root_of(dim)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """The outputs of the heads that the output joins."""
        return tuple(name for name in self.example.tables if name.startswith("head "))

    def parents(self, name: str) -> tuple[str, ...]:
        """The steps that a step is computed from; empty if one is missing, or if the step is an input."""
        if name in GIVEN or name in self.heads:
            return ()
        if name == "output" and self.heads:
            return self.heads
        wanted = self._wanted(name)
        return wanted if all(self.has(parent) for parent in wanted) else ()

    def _wanted(self, name: str) -> tuple[str, ...]:
        tables = self.example.tables
        source = "context" if "context" in tables else "x"
        return {
            "q": ("x", "w_q"),
            "k": (source, "w_k"),
            "v": (source, "w_v"),
            "scores": ("q", "k"),
            "scaled": ("scores",),
            "masked": ("scaled",),
            "exps": ("masked",),
            "total": ("exps",),
            "weights": ("exps",) if "exps" in tables else ("masked",),
            "output": ("weights", "v"),
            "projected": ("output", "w_o"),
        }[name]

    def has(self, name: str) -> bool:
        """Whether a step is printed or can be computed."""
        return self._printed(name) or bool(self.parents(name))

    def _printed(self, name: str) -> bool:
        table = self.example.tables.get(name)
        return table is not None and not table.groups

    def exact(self, name: str) -> Matrix:
        """A step computed from the first tables without rounding."""
        return self._remembered(
            "exact", name, lambda: self._made(Exact, name, self.exact) or self._values(name)
        )

    def linked(self, name: str) -> Matrix:
        """A step computed from the printed numbers of the nearest printed steps."""
        return self._remembered("linked", name, lambda: self._made(Exact, name, self.nearest))

    def nearest(self, name: str) -> Matrix:
        """The printed step, or else the step computed from the nearest printed ones."""
        return self._values(name) if self._printed(name) else self.linked(name)

    def ranges(self, name: str) -> list[list[Range]]:
        """The ranges of a step if the nearest printed numbers may be anywhere within their digits."""
        return self._remembered("ranges", name, lambda: self._made(Ranges, name, self.around))

    def reach(self, name: str) -> list[list[Range]]:
        """The ranges of a step if the first tables may be anywhere within their digits."""
        return self._remembered(
            "reach", name, lambda: self._made(Ranges, name, self.reach) or self.around(name)
        )

    def around(self, name: str) -> list[list[Range]]:
        """The ranges of a step: those of its printed digits, or else the computed ones."""
        if not self._printed(name):
            return self.ranges(name)
        table = self.example.tables[name]
        # Inputs and matrices are exact by definition; later tables may have been rounded for printing.
        return [[(x, x) for x in row] for row in table.values] if name in GIVEN else table.ranges

    def _remembered(self, how: str, name: str, make: Callable[[], Any]) -> Any:
        if (how, name) not in self._memory:
            self._memory[how, name] = make()
        return self._memory[how, name]

    def _values(self, name: str) -> Matrix:
        return self.example.tables[name].values

    def _made(self, over: Any, name: str, get: Callable[[str], Any]) -> Any:
        """A step over numbers or over ranges, its parents from `get`; None if it has none."""
        parents = self.parents(name)
        if not parents:
            return None
        a = get(parents[0])
        if parents == self.heads:
            parts = [get(parent) for parent in parents]
            return [[x for row in rows for x in row] for rows in zip(*parts, strict=True)]
        if name in ("q", "k", "v", "output", "projected"):
            return over.product(a, get(parents[1]))
        if name == "scores":
            return over.product(a, transpose(get(parents[1])))
        if name == "scaled":
            factor = 1.0 if self.scale is None else self.scale.value
            return over.times(a, factor if over is Exact else (factor, factor))
        if name == "masked":
            return a if self.example.allowed is None else over.hidden(a, self.example.allowed)
        if name == "weights":
            return over.shares(a) if parents == ("exps",) else over.softmax(a)
        return over.exps(a) if name == "exps" else over.sums(a)
