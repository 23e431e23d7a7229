"""`check`: judge which printed numbers of a worked example follow from the others, and why others don't."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.checking.calculations import checked_calculations
from regard.checking.chain import Chain
from regard.checking.counts import Counts, checked_counts
from regard.checking.example import Example
from regard.checking.judge import judge
from regard.checking.names import GIVEN, STEPS
from regard.checking.reading import read
from regard.checking.report import Report
from regard.checking.settle import settled
from regard.checking.verdict import CheckedExample, CheckedStep, Verdict
from regard.errors import RegardError

__all__ = ["check"]


def check(printed: str | Mapping[str, Any] | None = None, /, **tables: Any) -> Report:
    """Judge a worked example of attention by its printed numbers, cell by cell, with causes.

    Give any of x, w_q, w_k, w_v, q, k, v, scores, scaled, masked, exps, total, weights, output, w_o and
    projected, and the scale, mask, tokens or `causal=True`: as text in any form (JSON, Markdown, LaTeX,
    printed arrays), as a mapping, or by name. Digits count: "0.40" is a number known to ±0.005.

    >>> report = check(scores="18 2 -2 1", scale="1/√64", scaled="2.3 0.26 -0.20 0.10")
    >>> [(cell.printed.text, cell.right) for cell in report.wrong]
    [('0.26', '0.25'), ('-0.20', '-0.25'), ('0.10', '0.13')]
    """
    if printed is not None and tables:
        raise RegardError(
            f"check got a text or a mapping and also {', '.join(tables)}; give one or the other."
        )
    written = checked_calculations(printed) if isinstance(printed, str) else None
    examples = read(tables if printed is None else printed, tables_wanted=written is None)
    found = [_judged(example, written is None) for example in examples]
    kept = tuple(example for example in found if example is not None)
    if written is not None and len(kept) < 2:
        example = kept[0] if kept else CheckedExample("", ())
        kept = (replace(example, steps=(*example.steps, written)),)
    if not kept:
        raise RegardError(
            "a shape is given and no size was printed for it; add w_q, per_layer_millions or bytes."
        )
    return Report(kept)


def _judged(example: Example | Counts, wanted: bool) -> CheckedExample | None:
    return checked_counts(example) if isinstance(example, Counts) else _checked(settled(example), wanted)


def _checked(example: Example, wanted: bool) -> CheckedExample | None:
    """The verdicts about one example; with `wanted`, raises if no table follows from others."""
    chain = Chain(example)
    steps: dict[str, CheckedStep] = {}
    for name in (*GIVEN, *chain.heads, *STEPS):
        if name in example:
            steps[name] = judge(chain, name, steps)
    if all(step.verdict is Verdict.GIVEN for step in steps.values()) and "weights" not in steps:
        if not wanted:
            return None
        raise RegardError(
            f"{', '.join(steps)} alone: nothing that is printed follows from the rest. Add what was computed "
            "from them: scores, weights or output."
        )
    return CheckedExample(example.name, tuple(steps.values()), example.notes)
