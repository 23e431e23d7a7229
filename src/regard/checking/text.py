"""Renders a report as text, and in terminal colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from regard.checking.verdict import Cell, CheckedExample, CheckedStep, Verdict

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["as_rich", "as_text"]

SIGNS = {
    Verdict.GIVEN: " ",
    Verdict.RIGHT: "✓",
    Verdict.ROUNDED: "≈",
    Verdict.INHERITED: "↳",
    Verdict.WRONG: "✗",
}
STYLES = {
    Verdict.GIVEN: "dim",
    Verdict.RIGHT: "green",
    Verdict.ROUNDED: "yellow",
    Verdict.INHERITED: "magenta",
    Verdict.WRONG: "bold red",
}
Paint = Callable[[str, Verdict], str]


def as_text(examples: Iterable[CheckedExample]) -> str:
    """Every table with a mark at each number, then its errors and their causes."""
    return "\n\n\n".join(_example(example, lambda text, _: text) for example in examples)


def as_rich(examples: Iterable[CheckedExample]) -> Group:
    """The same, with the numbers in the colours of their verdicts."""
    from rich.console import Group
    from rich.markup import escape
    from rich.text import Text

    def paint(text: str, verdict: Verdict) -> str:
        return f"[{STYLES[verdict]}]{escape(text)}[/]"

    return Group(*(Text.from_markup(f"{_example(example, paint, escape)}\n") for example in examples))


def _example(example: CheckedExample, paint: Paint, plain: Callable[[str], str] = str) -> str:
    wrong = len(example.wrong)
    said = (
        f"{wrong} of {example.checked} checked numbers {'is' if wrong == 1 else 'are'} not right"
        if wrong
        else "nothing that is printed follows from the rest; every row of weights adds up to 1"
        if not example.checked
        else f"all {example.checked} checked numbers are right"
        if example.checked != 1
        else "the checked number is right"
    )
    title = f"{example.name}: {said}" if example.name else f"{said[0].upper()}{said[1:]}"
    blocks = [plain(f"{title}.")]
    blocks += [plain(note) for note in example.notes]
    blocks += [_step(step, paint, plain) for step in example.steps]
    return "\n\n".join(blocks)


def _step(step: CheckedStep, paint: Paint, plain: Callable[[str], str]) -> str:
    given = step.verdict is Verdict.GIVEN
    lines = [plain(f"{step.formula}, given" if given else step.formula)]
    width = max(len(cell.printed.text) for cell in step)
    beside = max(map(len, step.rows), default=0)
    if step.columns:
        width = max(width, *map(len, step.columns))
        lines.append(plain("  " + " " * beside + "".join(f"  {c:>{width}} " for c in step.columns)))
    for number, row in enumerate(step.cells):
        label = plain(f"{step.rows[number]:<{beside}}") if step.rows else ""
        lines.append("  " + label + "".join(f"  {_cell(cell, width, paint)}" for cell in row))
    return "\n".join([*lines, *(plain(line) for line in _findings(step))])


def _cell(cell: Cell, width: int, paint: Paint) -> str:
    return paint(f"{cell.printed.text:>{width}}{SIGNS[cell.verdict]}", cell.verdict)


def _findings(step: CheckedStep) -> list[str]:
    """For each cause, the cells that it explains, with the right numbers."""
    lines = []
    for cause in step.causes:
        cells = [cell for cell in step.wrong if cell.cause == cause]
        shown = "; ".join(
            f"{step.place(cell)}: {cell.printed.text}" + (f", right is {cell.right}" if cell.right else "")
            for cell in cells[:6]
        )
        more = f"; and {len(cells) - 6} more" if len(cells) > 6 else ""
        lines += [f"  {SIGNS[cells[0].verdict]} {cause[0].upper()}{cause[1:]}.", f"    {shown}{more}"]
    return lines
