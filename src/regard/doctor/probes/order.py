"""Checks causality: which tokens affect which outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.doctor.case import Case
from regard.doctor.recipe import pattern
from regard.doctor.subject import Scenario

__all__ = ["order"]


def order(case: Case) -> None:
    """Change one token at a time and check which outputs change."""
    for scenario in case.subject.scenarios():
        seen = case.seen(scenario)
        if scenario.allowed is not None and not scenario.causal:
            _masked(case, scenario, seen)
        else:
            _causal(case, scenario, seen)


def _is(seen: Tensor, name: str) -> bool:
    return bool((seen == pattern(name, *seen.shape)).all())


def _causal(case: Case, scenario: Scenario, seen: Tensor) -> None:
    n = len(seen)
    later = int(seen.triu(1).sum())
    evidence = (
        f"called {scenario.label} on {n} tokens, {later} of {n * (n - 1) // 2} later tokens reach a query"
    )
    if _is(seen, "ahead"):
        case.find("sees-one-ahead", f"{evidence}: for each query, the one right after it", scenario)
    elif later and not bool(seen.tril(-1).any()):
        case.find("mask-inverted", f"{evidence}, and no earlier one does")
    elif case.subject.seeable and _is(seen, "strict"):
        case.find(
            "cannot-see-itself",
            f"called {scenario.label}, every earlier value reaches a query; its own does not",
        )
    elif scenario.causal and later:
        case.find("causal-leak", evidence, scenario)
    elif case.subject.seeable and not later and bool(seen.any()):
        through = case.seen(scenario, "k")
        if bool(through.triu(1).any()):
            case.find(
                "causal-leak", f"later values reach no query, but {int(through.triu(1).sum())} later keys do"
            )


def _masked(case: Case, scenario: Scenario, seen: Tensor) -> None:
    allowed = scenario.allowed
    if allowed is None:
        return
    allowed = allowed.reshape(-1, *allowed.shape[-2:])[0]
    without = case.seen(case.subject.scenarios()[0])
    forbidden = int((seen & ~allowed).sum())
    evidence = f"of {int((~allowed).sum())} pairs that {scenario.label} forbids, {forbidden} still attend"
    if not forbidden:
        return
    if torch.equal(seen, without):
        if set(case.subject.parameters.unread) & {scenario.label.partition("=")[0]} and not bool(
            seen.triu(1).any()
        ):
            return
        case.find("mask-ignored", f"{evidence}, the same as without a mask", scenario)
    elif torch.equal(seen, ~allowed):
        case.find("mask-inverted", f"{evidence}, and no other pair does")
    else:
        case.find("padding-leak", evidence, scenario)
