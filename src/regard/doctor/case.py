"""The state of one examination, passed from probe to probe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regard.doctor.finding import Finding
from regard.doctor.fit import Fit
from regard.doctor.influence import influence
from regard.doctor.subject import Options, Scenario, Subject

__all__ = ["Case", "larger"]


@dataclass
class Case:
    """The subject, the options, and the findings, notes and fits so far."""

    subject: Subject
    options: Options
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fits: dict[str, Fit | None] = field(default_factory=dict)
    # Reasons why the subject can't be called healthy although nothing was found.
    unexamined: list[str] = field(default_factory=list)
    shown: dict[str, tuple[Scenario | None, Fit | None]] = field(default_factory=dict)
    _seen: dict[tuple[str, str, float], Tensor] = field(default_factory=dict)

    def find(
        self, code: str, evidence: str, scenario: Scenario | None = None, fit: Fit | None = None
    ) -> None:
        """Add a finding, once per code; scenario and fit are used to show it on a small input."""
        if code not in self.codes:
            self.findings.append(Finding(code, evidence))
            self.shown[code] = (scenario, fit)

    def note(self, text: str) -> None:
        """Add a remark that is not a finding."""
        if text not in self.notes:
            self.notes.append(text)

    def leave(self, why: str) -> None:
        """Note that something could not be examined, and the remedy."""
        if why not in self.unexamined:
            self.unexamined.append(why)

    @property
    def codes(self) -> list[str]:
        """The codes of the findings so far."""
        return [finding.code for finding in self.findings]

    def run(self, state: Any, scenario: Scenario) -> Tensor:
        """The output in one scenario."""
        return self.subject.run(state, **scenario.how)

    def seen(self, scenario: Scenario, part: str = "v", size: float = 1.0) -> Tensor:
        """Which tokens affect which outputs in one scenario, with inputs `size` times as large as usual."""
        key = (scenario.label, part, size)
        if key not in self._seen:
            state = larger(self.subject.sample(), size)
            change = lambda s, j: self.subject.change(s, j, part)  # noqa: E731
            run = lambda s: self.run(s, scenario)  # noqa: E731
            self._seen[key] = influence(run, state, change, self.subject.length)
        return self._seen[key]


def larger(state: Any, size: float) -> Any:
    """Scale the inputs by a factor, and so the scores by its square; a function's values are unchanged."""
    if size == 1.0:
        return state
    if isinstance(state, tuple):
        return state[0] * size, state[1] * size, state[2]
    return state * size if isinstance(state, Tensor) and state.is_floating_point() else state
