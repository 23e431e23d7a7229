"""The smallest input that shows a finding, with the expected and the actual output."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from regard.doctor.adapter import FunctionSubject
from regard.doctor.fit import Fit
from regard.doctor.influence import difference
from regard.doctor.modules import ModuleSubject
from regard.doctor.recipe import pattern
from regard.doctor.subject import Scenario, Subject

__all__ = ["example_of"]

# Smaller differences don't show in the printed numbers.
VISIBLE = 5e-3


def example_of(subject: Subject, scenario: Scenario, fit: Fit | None) -> dict[str, str]:
    """Input, expected and actual output as text; empty if no small input shows the finding."""
    try:
        if fit is None:
            return _leak(subject, scenario)
        if isinstance(subject, FunctionSubject):
            return _of_function(subject, scenario, fit)
        if isinstance(subject, ModuleSubject):
            return _of_module(subject, scenario, fit)
    except Exception:
        # A subject may refuse a small input; then the finding has no example.
        return {}
    return {}


def _numbers(x: Tensor) -> str:
    digits = [[f"{float(value):.3g}" for value in row] for row in x.reshape(-1, x.shape[-1])]
    return "[" + ", ".join("[" + ", ".join(row) + "]" for row in digits) + "]"


def _allowed(scenario: Scenario, fit: Fit, again: Scenario, n: int) -> Tensor:
    if again.allowed is not None:
        return again.allowed
    return pattern("causal" if fit.pattern == "causal" else "full", n, n)


def _of_function(subject: FunctionSubject, scenario: Scenario, fit: Fit) -> dict[str, str]:
    kept = subject.heads, subject.key_heads, subject.width
    q, k, v = subject.inputs
    sizes = product((1, 2), (1, 2, 3, 4), (2, 4) if not subject.options.dim else (subject.width,))
    try:
        for heads, n, width in sizes:
            subject.heads, subject.key_heads, subject.width = heads, heads, width
            draw = torch.Generator().manual_seed(1)
            state = tuple(torch.randint(-2, 3, (2, heads, n, width), generator=draw).float() for _ in "qkv")
            again = next((one for one in subject.scenarios(n) if one.label == scenario.label), scenario)
            wanted = subject.expected(state, fit.convention, _allowed(scenario, fit, again, n), fit.base)
            got = subject.run(state, **again.how)
            if wanted is not None and difference(got[:1], wanted[:1]) > VISIBLE:
                given = zip((q, k, v), state, strict=True)
                return {
                    "input": f"{heads} head{'s' * (heads > 1)}, {n} token{'s' * (n > 1)}, {scenario.label}: "
                    + ", ".join(f"{name} = {_numbers(x[:1])}" for name, x in given),
                    "expected": _numbers(wanted[:1]),
                    "got": _numbers(got[:1]),
                }
    finally:
        subject.heads, subject.key_heads, subject.width = kept
    return {}


def _of_module(subject: ModuleSubject, scenario: Scenario, fit: Fit) -> dict[str, str]:
    for n in (2, 3, subject.length):
        small = subject if n == subject.length else subject.shorter(n)
        again = next((one for one in small.scenarios(n) if one.label == scenario.label), scenario)
        got, inside = small.core(small.sample(n), again)
        wanted = small.expected(inside, fit.convention, _allowed(scenario, fit, again, n), fit.base)
        if wanted is None or wanted.shape != got.shape:
            continue
        away = (got - wanted)[0].abs().amax(-1).nan_to_num(float("inf"))
        visible = away > VISIBLE * float(wanted.abs().max())
        if bool(visible.any()):
            row = int(visible.int().argmax())
            # The first numbers may be equal, for example those of the first head if heads are mixed up.
            far = (got - wanted)[0, row].abs().nan_to_num(float("inf")) > VISIBLE * float(wanted.abs().max())
            start = int(far.int().argmax()) // 4 * 4
            shown = slice(start, start + 4)
            which = "first numbers" if not start else f"numbers from {start}"
            return {
                "input": f"{n} tokens of torch.randn, {scenario.label}, random weights: "
                f"what the heads give for token {row}, {which}",
                "expected": _numbers(wanted[0, row, shown]),
                "got": _numbers(got[0, row, shown]),
            }
    return {}


def _leak(subject: Subject, scenario: Scenario) -> dict[str, str]:
    """The fewest tokens with which one affects another that must not see it."""
    for n in range(2, subject.length + 1):
        again: Any = next((one for one in subject.scenarios(n) if one.label == scenario.label), None)
        if again is None:
            return {}
        state = subject.sample(n)
        before = subject.run(state, **again.how)
        allowed = again.allowed if again.allowed is not None else pattern("causal", n, n)
        allowed = allowed.reshape(-1, n, n)[0]
        for row, token in (~allowed).nonzero().tolist():
            after = subject.run(subject.change(state, token), **again.how)
            if row != token and difference(after[:1, row], before[:1, row]) > VISIBLE:
                return {
                    "input": f"{n} random tokens, {scenario.label}: token {token} is changed",
                    "expected": f"the output for token {row} stays {_numbers(before[0, row, :4])}",
                    "got": f"it becomes {_numbers(after[0, row, :4])}",
                }
    return {}
