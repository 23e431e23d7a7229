"""Checks that the sequences of a batch don't affect each other."""

from __future__ import annotations

from regard.doctor.case import Case
from regard.doctor.influence import rows_changed
from regard.doctor.modules import ModuleSubject

__all__ = ["sequences"]


def sequences(case: Case) -> None:
    """Change the first sequence of a batch and check whether the output of another changes, for any
    layout."""
    subject = case.subject
    if not isinstance(subject, ModuleSubject) or subject.own or subject.batch < 2:
        return
    state = subject.sample()
    before, other = subject.run(state), state.clone()
    other[0] = other[0].roll(1, -1) * -1.5 + 0.5
    count = int(rows_changed(before[1:], subject.run(other)[1:]).sum())
    if count:
        case.find(
            "sequences-mixed",
            f"{count} of {subject.length} tokens of the second sequence change with the first",
        )
