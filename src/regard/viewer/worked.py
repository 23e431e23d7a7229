"""The worked textbook examples, in the same form as the steps of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.tracing import EXAMPLES, Step, Trace, example
from regard.tracing.worked import CELLS, Worker
from regard.viewer.plain import number
from regard.viewer.steps import Part, step

__all__ = ["worked_names", "worked_steps"]


def worked_names() -> list[str]:
    """The names of the examples."""
    return list(EXAMPLES)


def worked_steps(name: str) -> dict[str, Any]:
    """Every step of an example, with the numbers that `regard explain` prints.

    >>> worked_steps("three")["steps"][-2]["parts"][0]["data"]
    [[0.4011, 0.1978, 0.4011]]
    """
    if name not in EXAMPLES:
        raise KeyError(f"no example is called {name!r}; there are {', '.join(map(repr, EXAMPLES))}.")
    trace = example(name)
    query = len(trace.tokens) - 1
    weights = trace["weights"].at(0, 0)[query]
    return {
        "query": query,
        "token": trace.tokens[query],
        "head": 0,
        "keys": list(range(len(trace.key_tokens))),
        "tokens": list(trace.key_tokens),
        "visible": int((weights > 0).sum()),
        "more": 0,
        "dim": trace["q"].value.shape[-1],
        "scale": trace.recipe.scale,
        "temperature": 1.0,
        "scaled": True,
        "entropy": number(float(torch.special.entr(weights).sum())),
        "steps": [_step(trace, one) for one in trace],
        "next": [],
    }


def _step(trace: Trace, one: Step) -> dict[str, Any]:
    axes = [axis for axis in one.axes if axis not in ("batch", "heads")]
    value: Tensor = one.at(0, 0)
    value = value if value.ndim == 2 else value[:, None]
    names = {"query": trace.tokens, "token": trace.tokens, "key": trace.key_tokens}
    rows = list(names.get(axes[0], ()))
    columns = list(names.get(axes[1] if len(axes) > 1 else "", ())) or [str(i) for i in range(value.shape[1])]
    title = one.name[0].upper() + one.name[1:]
    part = Part(one.name, rows, columns, value, worked=_worked(trace, one))
    return step(one.name, title, one.formula, one.sentence, part)


def _worked(trace: Trace, one: Step) -> list[list[str]]:
    if one.name not in CELLS:
        return []
    queries, keys = range(len(trace.tokens)), range(len(trace.key_tokens))
    workers = [Worker(trace, query, head=0, batch=0) for query in queries]
    return [[worker.cell(one.name, key) for key in keys] for worker in workers]
