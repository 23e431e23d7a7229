"""A diagnosis from what a case has learnt."""

from __future__ import annotations

from regard.doctor.case import Case
from regard.doctor.diagnosis import Diagnosis

__all__ = ["diagnosis_of"]


def diagnosis_of(case: Case) -> Diagnosis:
    """The findings with their examples and fixes in the user's names, and the rest as it is."""
    subject = case.subject
    return Diagnosis(
        subject.name, tuple(case.findings), tuple(case.notes), subject.reading(), tuple(case.unexamined)
    )
