"""Evaluates written-out arithmetic, such as 0.4×10 + 0.2×5 = 5, and compares the two sides."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from regard.checking.numeral import Numeral, numeral
from regard.errors import RegardError

__all__ = ["Equation", "equations_in", "evaluated"]

_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?(?:e-?\d+)?|\.\d+)|(more:|exp|sqrt|tanh|cos|sin|ln|log|e(?=\^)|[-+*/^()√]))"
)
_SIGNS = {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\\cdot": "*", "\\times": "*"}
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp, "sqrt": math.sqrt, "tanh": math.tanh, "cos": math.cos, "sin": math.sin, "ln": math.log,
    "log": math.log,
}  # fmt: skip
# The decimals to which two calculations joined by ≈ are compared.
DECIMALS, HALF = 3, 0.0005


@dataclass(frozen=True)
class Equation:
    """One step of a calculation: its left side, the value of that, and the printed result."""

    left: str
    value: float
    printed: Numeral

    @property
    def holds(self) -> bool:
        """Whether the printed number equals the value of the printed left side."""
        return self.printed.shows(self.value)

    @property
    def possible(self) -> bool:
        """Whether it is possible if the numbers on the left side are rounded themselves."""
        off = 0.0
        for found in re.finditer(r"\d*\.\d+|\d+\.\d*", self.left):
            half = 0.5 * 10.0 ** -len(found[0].partition(".")[2])
            moved = f"({float(found[0]) + half:.12f})"
            off += abs(evaluated(self.left[: found.start()] + moved + self.left[found.end() :]) - self.value)
        return abs(self.printed.value - self.value) <= self.printed.half + off * (1 + 1e-6)


def evaluated(text: str) -> float:
    """The value of an expression of printed numbers.

    >>> evaluated("0.401×10 + 0.198×0 + 0.401×5"), evaluated("e^0 / (e^0 + e^(−2) + (3 more: 0.5))") < 1
    (6.015, True)
    """
    try:
        return _Parser(text).whole()
    except (IndexError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise RegardError(
            f"{text.strip()!r} is no calculation; write numbers with + − × / ^ and brackets."
        ) from error


def equations_in(text: str) -> list[Equation]:
    """The calculations in a text: lines, or parts of lines, of the form a×b + c×d = e, with ≈ or =.

    >>> [(e.left, e.holds) for e in equations_in("so 0.3 / √2 ≈ 0.212, and 2×3 = 7")]
    [('0.3 / √2', True), ('2×3', False)]
    """
    found = []
    for line in text.splitlines():
        for part in re.split(r"[;:](?!\s*[-−]?\d+(?:\.\d+)?\))|,\s", line):
            sides = re.split(r"[≈=]", part)
            for left, right in pairwise(sides):
                made = _equation(left, right)
                found += [made] if made is not None else []
    return found


def _equation(left: str, right: str) -> Equation | None:
    expression = re.search(
        r"[-−\d(√e.][^a-df-zA-Z]*(?:(?:e\^|exp|sqrt|tanh|cos|sin|more:)[^a-df-zA-Z]*)*$", left.strip()
    )
    result = re.match(r"\s*([-−]?\d+(?:\.\d+)?(?:e[-−]?\d+)?)(?=\s*(?:$|[^\d\s+×*/·^.−e-]))", right)
    # In a chain of equations, each side is compared with the next.
    other = right.strip()
    if expression is None or not re.search(r"[+×*/·÷^√]|\s[-−]\s", expression[0]):
        return None
    if result is None:
        try:
            printed, value = evaluated(other), evaluated(expression[0])
        except RegardError:
            return None
        return Equation(expression[0], value, Numeral(other, printed, HALF, DECIMALS))
    try:
        return Equation(expression[0], evaluated(expression[0]), numeral(result[1]))
    except RegardError:
        return None


class _Parser:
    """A recursive-descent parser of sums, products, powers and brackets."""

    def __init__(self, text: str) -> None:
        for sign, plain in _SIGNS.items():
            text = text.replace(sign, plain)
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(text[at:])
            self.tokens.append(found[1] or found[2])
            at = found.end()
        self.at = 0

    def whole(self) -> float:
        value = self._sum()
        if self.at != len(self.tokens):
            raise ValueError(self.tokens[self.at])
        return value

    def _next(self, *wanted: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def _sum(self) -> float:
        value = self._product()
        while sign := self._next("+", "-"):
            value += self._product() if sign == "+" else -self._product()
        return value

    def _product(self) -> float:
        value = self._power()
        while sign := self._next("*", "/"):
            value = value * self._power() if sign == "*" else value / self._power()
        return value

    def _power(self) -> float:
        if self._next("-"):
            return -self._power()
        value = self._atom()
        return value ** self._power() if self._next("^") else value

    def _atom(self) -> float:
        if self._next("("):
            value = self._sum()
            if self._next("more:"):  # (3 more: 0.5) stands for the terms that are not written out
                value = self._sum()
            if not self._next(")"):
                raise ValueError(")")
            return value
        if self._next("√"):
            return math.sqrt(self._atom())
        if self._next("e"):
            return math.e
        if name := self._next(*_FUNCTIONS):
            return _FUNCTIONS[name](self._atom())
        self.at += 1
        return float(self.tokens[self.at - 1])
