"""Masks that are numbers: do they hold against large scores?"""

from __future__ import annotations

from regard.doctor.case import Case
from regard.doctor.probes.padding import leak

__all__ = ["finite_mask"]

# Scores near 1e5: beyond -1e4, about what half precision (65,504) can hold, and far from -1e9.
SIZE = 300.0


def finite_mask(case: Case) -> None:
    """Probe causality and padding with large scores; what leaks now and did not before is a finite mask."""
    subject = case.subject
    if subject.kind == "model":
        return  # token ids cannot be made larger
    for scenario in subject.scenarios():
        seen = case.seen(scenario)
        if bool(seen.all()):
            continue
        large = case.seen(scenario, size=SIZE)
        leaked = int((large & ~seen).sum())
        if leaked:
            case.find(
                "finite-mask",
                f"called {scenario.label} with scores near 1e5, "
                f"{leaked} of {int((~seen).sum())} masked pairs attend",
            )
            return
    if getattr(subject, "padding", None):
        noticed, _ = leak(case, SIZE)
        if bool(noticed.any()):
            case.find(
                "finite-mask",
                f"with scores near 1e5, {int(noticed.sum())} tokens notice what their padding holds",
            )
