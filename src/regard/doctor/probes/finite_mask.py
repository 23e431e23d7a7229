"""Checks finite additive masks against large scores."""

from __future__ import annotations

from regard.doctor.case import Case, larger
from regard.doctor.probes.padding import leak
from regard.doctor.subject import Scenario

__all__ = ["finite_mask"]

# Scores near 1e3, which badly trained models reach, and near 1e5: beyond -1e4 and far from -1e9.
SIZE, HUGE = 30.0, 300.0


def finite_mask(case: Case) -> None:
    """Probe causality and padding with large scores; a leak that small scores don't show is a finite mask."""
    if case.subject.kind == "model":
        return  # token ids cannot be made larger
    for size, words in ((SIZE, "1e3"), (HUGE, "1e5")):
        evidence = _leaks(case, size, words)
        if evidence and size == SIZE:
            return case.find("finite-mask", evidence)
        if evidence:
            advice = "filling with -inf or torch.finfo(scores.dtype).min holds against any score"
            return case.note(f"its mask is a finite number: {evidence}; {advice}")
    return None


def _overflows(case: Case, scenario: Scenario, size: float) -> bool:
    """Whether large inputs by themselves give NaN, which then affects every query."""
    state = case.subject.sample()
    usual, large = case.run(state, scenario), case.run(larger(state, size), scenario)
    return bool((usual.isfinite() & ~large.isfinite()).any())


def _leaks(case: Case, size: float, words: str) -> str:
    subject = case.subject
    for scenario in subject.scenarios():
        seen = case.seen(scenario)
        if bool(seen.all()) or _overflows(case, scenario, size):
            continue
        leaked = int((case.seen(scenario, size=size) & ~seen).sum())
        if leaked:
            masked = int((~seen).sum())
            return (
                f"called {scenario.label} with scores near {words}, {leaked} of {masked} masked pairs attend"
            )
    whole = subject.scenarios()
    if subject.padding and subject.kind != "function" and not any(_overflows(case, s, size) for s in whole):
        noticed, _ = leak(case, size)
        if bool(noticed.any()):
            return f"with scores near {words}, {int(noticed.sum())} tokens notice what their padding holds"
    return ""
