"""Traces that start in the middle: from scores, or from weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RegardError, ShapeError
from regard.tracing.arrays import as_tensor, one_dtype
from regard.tracing.result import Trace
from regard.tracing.step import Step

__all__ = ["as_row", "as_scores", "check_weights", "from_scores", "from_weights"]

SCORES = "Given: one score for each pair of a query and a key, as high as the key fits."
WEIGHTS = "Given: of each query's attention, the share that goes to each key."
CONVEX = (
    "The weights are shares of one whole, so each number lies between the smallest and the largest of its "
    "column: a convex combination."
)
# The rounding error of each printed weight.
ROUNDING = 0.0051


def as_row(name: str, given: Any) -> Float[Tensor, "q k"]:
    """A table with one number per pair; a flat list is the row of one query."""
    table = as_tensor(name, given)
    if table.ndim == 1:
        return table[None]
    if table.ndim != 2:
        raise ShapeError(f"{name} has shape {tuple(table.shape)}; it must be (queries, keys), or one row.")
    return table


def as_scores(table: Float[Tensor, "q k"], v: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values whose scores equal the table: key j selects number j of a query."""
    keys = torch.eye(table.shape[1], dtype=table.dtype, device=table.device)
    values = torch.zeros_like(keys[:, :1]) if v is None else as_tensor("v", v)
    values = values[:, None] if values.ndim == 1 else values
    return one_dtype(table, keys, values)  # pyright: ignore[reportReturnType]


def from_scores(steps: Trace, mixed: bool) -> Trace:
    """Cut a trace with invented queries and keys so that it begins with scores; without v it ends with
    weights."""
    unmade = ("q", "k", "v", "scores") if mixed else ("q", "k", "v", "scores", "output")
    after = [step for step in steps.steps if step.name not in unmade]
    given = replace(steps["scores"], formula="scores", sentence=SCORES)
    # Show the values where they are used, after the weights.
    values = (steps["v"], after.pop()) if mixed else ()
    return replace(steps, steps=(given, *after, *values))


def from_weights(steps: Trace, table: Float[Tensor, "q k"]) -> Trace:
    """Cut a trace of scores so that it begins with these weights and ends with the output."""
    v, output = steps["v"], steps["output"]
    mixed = table.to(v.value.dtype) @ v.value
    low, high = v.value.min(0).values, v.value.max(0).values
    inside = bool(((mixed >= low - 1e-9) & (mixed <= high + 1e-9)).all())
    text = f"{output.sentence} {CONVEX}" if inside else output.sentence
    weights = Step("weights", "weights", WEIGHTS, table.clone(), ("query", "key"))
    return replace(steps, steps=(weights, v, replace(output, sentence=text, value=mixed)))


def check_weights(table: Float[Tensor, "q k"]) -> None:
    """Raise unless rows are not negative and sum to 1, up to rounding."""
    if bool((table < 0).any()):
        row = int((table < 0).any(-1).nonzero()[0])
        least = float(table[row].min())
        raise RegardError(f"row {row} of weights holds {least:g}; weights are not negative.")
    for row, total in enumerate(table.sum(-1).tolist()):
        if abs(total - 1) > ROUNDING * table.shape[1]:
            raise RegardError(
                f"row {row} of weights adds up to {total:g}; weights are shares of 1. Divide by their sum, "
                "or start from the scores: trace(scores=...)."
            )
