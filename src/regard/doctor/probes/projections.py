"""The projections of a module: is each used, for what its name says, and is there one for the output?"""

from __future__ import annotations

from regard.doctor.case import Case
from regard.doctor.fit import Fit
from regard.doctor.modules import ModuleSubject
from regard.doctor.readings import Reading, meant_for

__all__ = ["projections"]


def projections(case: Case, found: Fit | None) -> None:
    """Compare what each projection does with what its name says."""
    subject = case.subject
    if not isinstance(subject, ModuleSubject) or subject.own:
        return
    idle = subject.unused()
    if found is not None:
        _output(case, subject, found.convention, found.error, idle)
    inputs = [name for name in idle if meant_for([name]) in ("query", "key", "value")]
    if inputs and not case.findings:
        case.find("projection-unused", f"{', '.join(inputs)} is held and never takes part in the output")
    elif found is not None and not case.findings:
        _names(case, subject, found.convention)


def _output(case: Case, subject: ModuleSubject, reading: Reading, error: float, idle: list[str]) -> None:
    """The heads' results come out side by side, unmixed."""
    if subject.anatomy.after or reading.heads < 2 or reading.query is None:
        return
    outs = [name for name in idle if meant_for([name]) == "output"]
    who = f"{outs[0]} is held and never applied" if outs else "no weight but those of q, k and v takes part"
    case.find(
        "missing-output-projection",
        f"the output equals the {reading.heads} heads laid side by side to {error:.0e}; {who}",
    )


def _names(case: Case, subject: ModuleSubject, reading: Reading) -> None:
    """A weight called key that computes values, and the like."""
    said = {}
    for role in ("query", "key", "value"):
        for index in {index for index, _ in getattr(reading, role) or ()}:
            said.setdefault(role, set()).add(meant_for(subject.anatomy.products[index].names))
    wrong = {
        role: next(iter(meant))
        for role, meant in said.items()
        if len(meant) == 1 and next(iter(meant)) not in (role, None, "output")
    }
    if len(wrong) >= 2:
        words = ", ".join(f"what is called {meant} is used as {role}" for role, meant in wrong.items())
        case.find("parts-swapped", words)
