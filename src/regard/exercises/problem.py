"""Problems: a question, hints, and grading of an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from regard.checking import Report, check, numeral
from regard.checking.chain import Chain
from regard.checking.reading import read
from regard.checking.reading.numbers import rows_of
from regard.errors import RegardError

__all__ = ["Choice", "Exercise", "Graded", "Posed", "Sheet"]


@dataclass(frozen=True)
class Graded:
    """Whether an answer is right, with a comment."""

    right: bool
    text: str


@dataclass(frozen=True)
class Sheet:
    """A problem whose answer is a table of numbers; `given` and the answer are judged as `regard check` does.

    >>> sheet = Sheet("softmax of 1 2 3?", {"scores": "1 2 3"}, "weights", 2)
    >>> sheet.solution, sheet.grade("0.09 0.24 0.67").right, sheet.grade("0.14 0.29 0.57").text
    ('0.09 0.24 0.67', True, 'Not yet: base 2 in place of e: 2 was raised to the scores.')
    """

    question: str
    given: dict[str, Any]
    step: str
    decimals: int

    @property
    def solution(self) -> str:
        """The right numbers, row by row, with the requested number of decimals."""
        return "\n".join(" ".join(row) for row in self._right())

    def grade(self, answer: str) -> Graded:
        rows = _rows(answer)
        right = self._right()
        # If two decimals are requested, 0.5 means 0.50: missing digits count as zeros.
        numbers = [self._with_decimals(x) for row in rows for x in row]
        if len(numbers) != sum(map(len, right)):
            wanted = f"{len(right)} rows of {len(right[0])}" if len(right) > 1 else f"{len(right[0])}"
            raise RegardError(f"the answer has {len(numbers)} numbers; wanted are {wanted}.")
        width = len(right[0])
        table = [numbers[i : i + width] for i in range(0, len(numbers), width)]
        report = self._judged(table)
        if report.ok:
            return Graded(True, "Right.")
        told = [cause for cause in report[self.step].causes if not cause.startswith("no known mistake")]
        count = len(report[self.step].wrong)
        more = told or [f"{count} of {len(numbers)} numbers are not right"]
        return Graded(False, f"Not yet: {'; '.join(more)}.")

    def _with_decimals(self, text: str) -> str:
        number = numeral(text)
        return f"{number.value:.{self.decimals}f}" if number.decimals < self.decimals else number.text

    def _judged(self, table: list[list[str]]) -> Report:
        return check({**self.given, self.step: "\n".join(" ".join(row) for row in table)})

    def _right(self) -> list[list[str]]:
        """The right result for the given numbers, rounded as requested."""
        (example,) = read(self.given)
        made = Chain(example).exact(self.step)  # pyright: ignore[reportArgumentType]
        shown = numeral("0." + "0" * self.decimals) if self.decimals else numeral("0")
        return [[shown.right(x) for x in row] for row in made]


@dataclass(frozen=True)
class Choice:
    """A problem whose answer is one of several words."""

    question: str
    options: tuple[str, ...]
    solution: str
    because: str

    def grade(self, answer: str) -> Graded:
        said = answer.strip().casefold()
        known = [option for option in self.options if option.casefold() == said]
        if not known:
            raise RegardError(f"the answer {answer.strip()!r} is none of {', '.join(self.options)}.")
        if known[0] == self.solution:
            return Graded(True, f"Right. {self.because}")
        return Graded(False, f"Not yet: it is not {known[0]}.")


Posed = Sheet | Choice


@dataclass(frozen=True)
class Exercise:
    """A kind of problem, with new numbers for every seed."""

    number: int
    title: str
    lesson: str
    hint: str
    pose: Callable[[Random], Posed]

    def posed(self, seed: int = 0) -> Posed:
        """The problem of one seed; the same seed gives the same problem."""
        # Mix in the exercise, so that two exercises with one seed have different numbers.
        return self.pose(Random(1000 * seed + self.number))


def _rows(answer: str) -> list[list[str]]:
    text = answer.replace("−", "-")
    if not re.search(r"\d", text):
        raise RegardError(f"the answer {answer.strip()!r} holds no number; write numbers, such as 0.24 0.76.")
    return rows_of(re.sub(r"[()]", " ", text))
