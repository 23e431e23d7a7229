"""Makes a diagnosis from a case: findings with a small example, and the user's line and names."""

from __future__ import annotations

import re
from dataclasses import replace

from regard.doctor.case import Case
from regard.doctor.diagnosis import Diagnosis
from regard.doctor.example import example_of
from regard.doctor.finding import Finding
from regard.doctor.lines import line_of

__all__ = ["diagnosis_of"]


def diagnosis_of(case: Case) -> Diagnosis:
    """The diagnosis of a case; findings get examples, and fixes in the user's names."""
    subject = case.subject
    findings = tuple(_shown(case, finding) for finding in case.findings)
    return Diagnosis(subject.name, findings, tuple(case.notes), subject.reading(), tuple(case.unexamined))


def _shown(case: Case, finding: Finding) -> Finding:
    scenario, fit = case.shown.get(finding.code, (None, None))
    return replace(
        finding,
        example=example_of(case.subject, scenario, fit) if scenario is not None else {},
        line=line_of(case.subject, finding.code, scenario),
        fix=_fix(finding.mistake.right, case.subject.names()),
    )


def _fix(code: str, names: dict[str, str]) -> str:
    """The corrected code with the user's names; for a module, with its projections.

    >>> _fix("weights = (q @ k.mT).softmax(-1)", {"q": "Q", "k": "K", "v": "V"})
    'weights = (Q @ K.mT).softmax(-1)'
    """
    if "x" not in names:
        return re.sub(r"(?<![\w.])(q|k|v|mask)(?!\w)", lambda m: names.get(m[0], m[0]), code)
    used = [name for name in "qkv" if re.search(rf"(?<![\w.]){name}(?!\w)", code) and name in names]
    parts = ", ".join(f"{name} from self.{names[name]}({names['x']})" for name in used)
    return code + (f"   # {parts}" if parts else "")
