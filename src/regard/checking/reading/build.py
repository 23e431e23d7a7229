"""Builds an example from a draft: orients lists, matches labels, checks shapes."""

from __future__ import annotations

import math
from dataclasses import replace

from regard.checking.example import Example, Scale, Table
from regard.checking.reading.draft import Draft
from regard.errors import RegardError, ShapeError

__all__ = ["build"]

MAPS = ("scores", "scaled", "masked", "exps", "weights")


def build(draft: Draft) -> Example:
    """The example of a draft; raises if its tables don't fit together."""
    tables = dict(draft.tables)
    notes = list(draft.notes)
    if draft.own and {"x", "scores"} <= tables.keys() and not {"q", "k"} & tables.keys():
        # x xᵀ: every vector is a query and a key.
        tables["q"] = tables["k"] = tables["x"]
        draft.scale = draft.scale or Scale(1.0, "times 1.000")
    keys = _keys(tables)
    # Values and sums printed as a plain list are one number per key, or per query.
    for name, wanted in (("v", keys), ("total", _queries(tables)), ("x", None)):
        table = tables.get(name)
        if table is not None and table.flat and wanted is not None and table.shape[1] == wanted > 1:
            tables[name] = table.upright()
    if (
        "k" in tables
        and tables["k"].flat
        and keys
        and keys > 1
        and tables["k"].shape[1] == keys
        and _narrow(tables)
    ):
        tables["k"] = tables["k"].upright()
    if draft.key_tokens or draft.tokens:
        for name in MAPS:
            if name in tables:
                tables[name] = _grouped(tables[name], draft.key_tokens or draft.tokens, notes)
    if draft.ignored:
        unread = ", ".join(dict.fromkeys(map(repr, draft.ignored[:3])))
        notes.append(f"Not judged, for no step is called so: the numbers of {unread}.")
    example = Example(tables, draft.name, draft.scale, None, draft.tokens, draft.key_tokens, tuple(notes))
    example = replace(example, scale=_scale(draft, example), allowed=_allowed(draft, example))
    example.check_shapes()
    return example


def _narrow(tables: dict[str, Table]) -> bool:
    return "q" in tables and tables["q"].shape[1] == 1


def _keys(tables: dict[str, Table]) -> int | None:
    for name in ("scores", "scaled", "masked", "exps", "weights"):
        if name in tables:
            return tables[name].shape[1]
    return None if "k" not in tables else tables["k"].shape[0]


def _queries(tables: dict[str, Table]) -> int | None:
    for name in (*MAPS, "q"):
        if name in tables:
            return tables[name].shape[0]
    return None


def _grouped(table: Table, tokens: tuple[str, ...], notes: list[str]) -> Table:
    """A table whose columns are named after tokens, in any order; each sums over the keys of that name."""
    if not table.columns or tuple(table.columns) == tokens:
        return table
    folded = [token.strip().casefold() for token in tokens]
    named = [label.strip().casefold() for label in table.columns]
    rest = [i for i, label in enumerate(named) if label in ("rest", "others", "other", "the rest")]
    groups = [tuple(i for i, token in enumerate(folded) if token == label) for label in named]
    taken = {i for group in groups for i in group}
    left = tuple(i for i in range(len(tokens)) if i not in taken)
    for i in rest:
        groups[i] = left
    if any(not group for group in groups):
        return table
    both = [table.columns[i] for i, group in enumerate(groups) if len(group) > 1 and i not in rest]
    notes += [f"{label} is the sum over {len(groups[table.columns.index(label)])} tokens." for label in both]
    return replace(table, groups=tuple(groups))


def _scale(draft: Draft, example: Example) -> Scale | None:
    scale, dim = draft.scale, example.dim
    if scale is None or scale.root or dim is None:
        return scale
    # √d may be printed with few digits: 1.41 is √2 if vectors have two numbers.
    printed = scale.words.rpartition(" ")[2]
    decimals = len(printed.partition(".")[2])
    return (
        Scale.root_of(dim)
        if abs(1 / scale.value - math.sqrt(dim)) <= 0.5 * 10.0**-decimals * 1.001
        else scale
    )


def _allowed(draft: Draft, example: Example) -> list[list[bool]] | None:
    if draft.mask is not None:
        return draft.mask
    size = _map_size(example)
    if draft.causal:
        if size is None:
            raise ShapeError("causal is given without queries and keys; give q and k, scores, or weights.")
        queries, keys = size
        return [[j <= i + keys - queries for j in range(keys)] for i in range(queries)]
    for name in ("masked", "scaled", "scores"):
        table = example.tables.get(name)
        if table is not None and any(math.isinf(x) for row in table.values for x in row):
            return [[x != -math.inf for x in row] for row in table.values]
    return None


def _map_size(example: Example) -> tuple[int, int] | None:
    for name in MAPS:
        if name in example and not example.tables[name].groups:
            return example.tables[name].shape
    if "q" in example and "k" in example:
        return example.tables["q"].shape[0], example.tables["k"].shape[0]
    if "x" in example:
        rows = example.tables["x"].shape[0]
        return rows, example.tables["context"].shape[0] if "context" in example else rows
    return None


def refused(draft: Draft) -> RegardError:
    """The error if no table was found."""
    unknown = f" {', '.join(map(repr, draft.ignored[:3]))} is no name known here." if draft.ignored else ""
    return RegardError(
        "no table of attention was found: write a name and its numbers, such as Q = [[1, 0]], scores: 1 0 1 "
        f"or weights: 0.4 0.2 0.4.{unknown}"
    )
