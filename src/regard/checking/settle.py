"""Infers settings that an example doesn't state: the scale, the mask, already scaled scores."""

from __future__ import annotations

import math
from dataclasses import replace

from regard.checking.arithmetic import Exact, Matrix
from regard.checking.chain import Chain
from regard.checking.example import Example, Scale, Table

__all__ = ["matches", "settled"]

# Common head widths, likeliest first.
WIDTHS = (64, 4, 2, 16, 1, 3, 128, 32, 8, 256, 512, 9, 5, 6, 25, 36, 49, 81, 100, 768, 1024)


def settled(example: Example) -> Example:
    """The example with inferred settings, and a note for each of them."""
    example = _scale_fitted(example)
    example = _already_scaled(example)
    return _causal_seen(_causal_zeros(example))


def matches(table: Table, values: Matrix) -> list[list[bool]]:
    """The cells of a table that show the values."""
    return [
        [cell.shows(x) for cell, x in zip(row, line, strict=True)]
        for row, line in zip(table.cells, values, strict=True)
    ]


def _scale_fitted(example: Example) -> Example:
    """Infer the scale from scores printed before and after scaling, if the text gives none."""
    chain = Chain(example)
    if chain.scale is not None or "scores" not in example or "scaled" not in example:
        return example
    table, scores = example.tables["scaled"], example.tables["scores"].values

    def hits(scale: float) -> int:
        return sum(map(sum, matches(table, Exact.times(scores, scale))))

    best = max(WIDTHS, key=lambda dim: (hits(1 / math.sqrt(dim)), -WIDTHS.index(dim)))
    if not hits(1 / math.sqrt(best)):
        return example
    note = f"The text gives no scale; the scaled scores fit division by √{best} best."
    return replace(example, scale=Scale.root_of(best), notes=(*example.notes, note))


def _already_scaled(example: Example) -> Example:
    """Treat scores that equal q kᵀ times the scale as scaled scores."""
    chain = Chain(example)
    if "scores" not in example or "scaled" in example or not chain.parents("scores"):
        return example
    scale = chain.scale
    if scale is None or scale.value == 1:
        return example
    table, raw = example.tables["scores"], chain.exact("scores")
    if all(map(all, matches(table, raw))) or not all(map(all, matches(table, Exact.times(raw, scale.value)))):
        return example
    tables = {("scaled" if name == "scores" else name): value for name, value in example.tables.items()}
    note = f"What is called scores is {scale.words} already."
    return replace(example, tables=tables, notes=(*example.notes, note))


def _causal_zeros(example: Example) -> Example:
    """Treat scores that are exactly 0 above the diagonal, and only there, as masked."""
    table = example.tables.get("masked")
    if example.allowed is not None or table is None or not Chain(example).parents("masked"):
        return example
    queries, keys = table.shape
    if queries != keys or queries < 2:
        return example
    causal = [[j <= i for j in range(keys)] for i in range(queries)]
    before = Chain(example).exact("scaled")
    zeros = [
        [x == 0 != y for x, y in zip(*rows, strict=True)] for rows in zip(table.values, before, strict=True)
    ]
    if any(
        zero == seen
        for row, line in zip(zeros, causal, strict=True)
        for zero, seen in zip(row, line, strict=True)
    ):
        return example
    return replace(example, allowed=causal)


def _causal_seen(example: Example) -> Example:
    """Infer a causal mask from weights that are exactly 0 above the diagonal, and only there."""
    table = example.tables.get("weights")
    if example.allowed is not None or table is None or table.groups:
        return example
    queries, keys = table.shape
    if not 1 < queries <= keys or not Chain(example).parents("weights"):
        return example
    causal = [[j <= i + keys - queries for j in range(keys)] for i in range(queries)]
    zeros = [[x == 0 for x in row] for row in table.values]
    if any(
        zero == seen
        for row, line in zip(zeros, causal, strict=True)
        for zero, seen in zip(row, line, strict=True)
    ):
        return example
    note = "The zeros above the diagonal are those of a causal mask."
    return replace(example, allowed=causal, notes=(*example.notes, note))
