"""The tables of a trace, which text, terminal and page render."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from regard.errors import MapError
from regard.tracing.labels import columns, count, find_query, printable
from regard.tracing.numerals import cells
from regard.tracing.step import Step
from regard.tracing.steps import Steps
from regard.tracing.worked import Worker

__all__ = ["Grid", "Panel", "caption", "panels"]

GAP = "…"
# The longest row that is split over several lines: the most keys of `regard explain`.
WRAPPED = 64


@dataclass(frozen=True)
class Grid:
    """A formatted table: labels, cells as text, and a shade from -1 to 1 or none for each."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    texts: list[list[str]]
    levels: list[list[float | None]]


@dataclass(frozen=True, eq=False)
class Panel:
    """One step as a table: for one batch row and one head, of every query or of one."""

    name: str
    formula: str
    sentence: str
    worked: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Float64[Tensor, "rows columns"]
    hidden: Bool[Tensor, "rows columns"]
    by_key: bool = False

    def grid(self, most_rows: int, most_columns: int) -> Grid:
        """The formatted table, without the middle of long sides."""
        rows, kept = _kept(len(self.rows), most_rows), _kept(len(self.columns), most_columns)
        texts, levels = self._texts(), self._levels()
        return Grid(
            tuple(GAP if r is None else self.rows[r] for r in rows),
            tuple(GAP if c is None else self.columns[c] for c in kept),
            [[GAP if r is None or c is None else texts[r][c] for c in kept] for r in rows],
            [[None if r is None or c is None else levels[r][c] for c in kept] for r in rows],
        )

    def fitted(self, most_rows: int, width: int) -> list[Grid]:
        """The tables within `width` characters; a longer single row of keys is continued in further
        tables."""
        most = self.fitting(width)
        if len(self.rows) > 1 or not self.by_key or not most < len(self.columns) <= WRAPPED:
            return [self.grid(most_rows, most)]
        row, lines = self.grid(1, WRAPPED), -(-len(self.columns) // (most + 1))
        size = -(-len(self.columns) // lines)
        cuts = [slice(start, start + size) for start in range(0, len(self.columns), size)]
        return [Grid(row.rows, row.columns[cut], [row.texts[0][cut]], [row.levels[0][cut]]) for cut in cuts]

    def fitting(self, width: int) -> int:
        """The number of columns that fit beside their labels into `width` characters; at least four."""
        texts = self._texts()
        widest = [
            max(columns(name), *(columns(row[i]) for row in texts)) + 2 for i, name in enumerate(self.columns)
        ]
        room = width - max(map(columns, self.rows), default=0)
        return len(widest) if sum(widest) <= room else max(4, (room - 3) // max(widest))

    def _texts(self) -> list[list[str]]:
        # Show a masked score as −∞, and its weight of 0 as a dot.
        blank = "−∞" if self.name == "masked" else "·"
        return [
            [blank if hide else text for text, hide in zip(line, hidden, strict=True)]
            for line, hidden in zip(cells(self.values), self.hidden.tolist(), strict=True)
        ]

    def _levels(self) -> list[list[float | None]]:
        drawn = ~self.hidden & self.values.isfinite()
        largest = float(self.values[drawn].abs().max()) if drawn.any() else 0.0
        levels = self.values / (largest or 1.0)
        return [
            [level if draw else None for level, draw in zip(line, mask, strict=True)]
            for line, mask in zip(levels.tolist(), drawn.tolist(), strict=True)
        ]


def panels(trace: Steps, query: int | str | None = None, head: int = 0, batch: int = 0) -> list[Panel]:
    """The steps of one batch row and one head as tables; with a query, only that query's row."""
    _check_place(trace, head, batch)
    at = None if query is None else find_query(trace.tokens, query)
    worker = Worker(trace, len(trace.tokens) - 1 if at is None else at, head, batch)
    return [_panel(trace, step, at, head, batch, worker) for step in trace.steps]


def _check_place(trace: Steps, head: int, batch: int) -> None:
    """Raise MapError if a trace has no such head or batch row."""
    for name, index, size in (("head", head, trace.heads), ("batch row", batch, trace.batch)):
        if not 0 <= index < size:
            have = "there is only one, 0" if size == 1 else f"count from 0 to {size - 1}"
            raise MapError(f"the trace has no {name} {index}; {have}.")


def caption(trace: Steps, query: int | str | None, head: int, batch: int) -> str:
    """The caption of a rendering, in one line."""
    queries, keys = len(trace.tokens), len(trace.key_tokens)
    parts = [f"{count(queries, 'query', 'queries')} × {count(keys, 'key', 'keys')}"]
    if trace.heads > 1:
        parts.append(f"head {head} of {trace.heads}")
    if trace.batch > 1:
        parts.append(f"batch row {batch} of {trace.batch}")
    if query is not None:
        parts.append(f"query {printable(trace.tokens[find_query(trace.tokens, query)])}")
    return ", ".join(parts)


def _panel(trace: Steps, step: Step, query: int | None, head: int, batch: int, worker: Worker) -> Panel:
    index = head // trace.recipe.group if step.name in ("k", "v") else head
    values = step.at(batch, index).to("cpu", torch.float64)
    axes = [axis for axis in step.axes if axis not in ("batch", "heads")]
    if values.ndim == 1:  # the sink's share: one number per query
        values, axes = values[:, None], [*axes, "share"]
    rows, above = (_names(trace, axis, size) for axis, size in zip(axes, values.shape, strict=True))
    hidden = _hidden(trace, step, head, batch, values)
    if query is not None and axes[0] == "query":
        rows, values, hidden = rows[query : query + 1], values[query : query + 1], hidden[query : query + 1]
    worked = worker.line(step.name)
    by_key = axes[-1] == "key"
    return Panel(step.name, step.formula, step.sentence, worked, rows, above, values, hidden, by_key)


def _names(trace: Steps, axis: str, size: int) -> tuple[str, ...]:
    if axis in ("query", "token"):
        return tuple(map(printable, trace.tokens))
    if axis == "key":
        return tuple(map(printable, trace.key_tokens))
    return ("share",) if axis == "share" else tuple(str(i) for i in range(size))


def _hidden(trace: Steps, step: Step, head: int, batch: int, values: Tensor) -> Tensor:
    """The masked cells; none in steps before the mask."""
    if step.name not in ("masked", "weights") or "masked" not in trace:
        return torch.zeros_like(values, dtype=torch.bool)
    return trace["masked"].at(batch, head).cpu() == -math.inf


def _kept(size: int, most: int) -> list[int | None]:
    """The indices of a side to show, with None for those left out."""
    if size <= most:
        return list(range(size))
    first = most // 2
    return [*range(first), None, *range(size - (most - first - 1), size)]
