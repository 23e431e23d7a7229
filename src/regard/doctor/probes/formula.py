"""Scale, softmax, mask, heads, rotary, projection: is the output the formula's, or that of a mistake?"""

from __future__ import annotations

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.fit import Fit, fit

__all__ = ["formula"]


def formula(case: Case) -> None:
    """Compare each scenario with the healthy recipe and with that of each mistake, to the first mistake."""
    subject = case.subject
    if not subject.conventions():
        return
    state = subject.sample()
    for scenario in subject.scenarios():
        seen = case.seen(scenario)
        found = fit(subject, scenario, state, seen)
        case.fits[scenario.label] = found
        if found is not None and found.codes:
            return _report(case, scenario.label, found)
        _projection(case, found)
    if isinstance(subject, FunctionSubject) and case.fits.get("plain") is not None and subject.grouped():
        scenario = subject.scenarios()[0]
        found = fit(subject, scenario, subject.sample(), case.seen(scenario))
        subject.key_heads = subject.heads
        if found is not None and found.codes:
            return _report(case, "4 query heads, 2 key heads", found)
    if all(found is None for found in case.fits.values()):
        case.note(
            "it computes no known form of softmax(q·k)·v; only what can be seen from outside was probed"
        )
    return None


def _report(case: Case, label: str, found: Fit) -> None:
    for code in found.codes:
        case.find(
            code,
            f"called {label}, the output equals the formula with {found.words} to {found.error:.0e} "
            f"and misses the healthy one by {found.healthy_error:.1%}",
        )


def _projection(case: Case, found: Fit | None) -> None:
    """The heads' results come out side by side, unmixed."""
    if found is None or isinstance(case.subject, FunctionSubject) or case.subject.own:
        return
    weights, heads = found.convention
    if weights.out is None and heads > 1:
        case.find(
            "missing-output-projection",
            f"the output equals the {heads} heads laid side by side to {found.error:.0e}; "
            "no weight but W_q, W_k and W_v takes part",
        )
