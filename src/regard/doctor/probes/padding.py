"""Checks whether a sequence's output depends on the contents of its padding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.doctor.case import Case, larger
from regard.doctor.fit import Fitting
from regard.doctor.influence import CLOSE, difference, rows_changed
from regard.doctor.masks import WEAK
from regard.doctor.recipe import pattern
from regard.doctor.subject import Scenario, Subject

__all__ = ["holes", "leak", "padding"]

# By convention 1 marks a token in these arguments.
TOKENS = ("attention_mask",)


def holes(subject: Subject) -> Tensor:
    """Which tokens are real: all but the first and the last, or all but the last if lengths are passed."""
    keep = torch.ones(getattr(subject, "batch", 2), subject.length, dtype=torch.bool)
    lengths = subject.padding is not None and subject.padding.meaning == "lengths"
    keep[:, 0] = lengths
    keep[:, -1] = False
    return keep


def leak(case: Case, size: float = 1.0, tolerance: float = CLOSE) -> tuple[Tensor, Tensor]:
    """Which of the real tokens change with the padding, and the output."""
    subject = case.subject
    keep, state = holes(subject), larger(subject.sample(), size)
    before, other = subject.run(state, keep=keep), state
    for j in (~keep[0]).nonzero()[:, 0].tolist():
        other = subject.change(other, j)
    after = subject.run(other, keep=keep)
    return rows_changed(before, after, tolerance)[keep[0]], before


def padding(case: Case) -> None:
    """Change the padding and check whether the output of a real token changes."""
    subject: Any = case.subject
    found = subject.padding
    if not found or subject.kind == "function":
        return
    noticed, out = leak(case)
    count = int(noticed.sum())
    if found.name in TOKENS and found.meaning in ("blocked", "zeros") and found.by_key and not count:
        case.find("mask-inverted", f"{found.name} with 1 for tokens hides the tokens and shows the padding")
        return
    if not count:
        return
    evidence = f"{count} of {len(noticed)} tokens change when the padding of {found.name} changes"
    plain = subject.run(subject.sample())
    codes = _codes(case)
    if difference(out, plain) < 1e-6:
        if found.name in subject.parameters.unread and not bool(
            case.seen(subject.scenarios()[0]).triu(1).any()
        ):
            return
        case.find("mask-ignored", f"{evidence}; the output is the same as without {found.name}")
    elif codes:
        code, words = codes
        case.find(code, f"{evidence}; the output equals the formula with {words}")
    elif subject.own:
        case.note(f"{evidence}: tokens meet outside attention too (convolution, recurrence, compressed keys)")
    elif not bool(leak(case, tolerance=WEAK)[0].any()):
        case.find("mask-weak", f"{evidence}, by less than {WEAK:.0%}: its mask damps and does not forbid")
    else:
        case.find("padding-leak", evidence)


def _codes(case: Case) -> tuple[str, str] | None:
    """The mask mistake that gives the padded output, if the formula with one fits."""
    subject: Any = case.subject
    keep = holes(subject)
    n = subject.length
    for name in ("full", "causal") if subject.conventions() else ():
        allowed = pattern(name, n, n) & keep[:, None, None, :]
        scenario = Scenario("padded", {"keep": keep}, allowed, rows=keep)
        found = Fitting(subject, scenario, subject.sample()).fit(pairs=False)
        wanted = ("mask-after-softmax", "mask-weak", "mask-inverted")
        if found is not None and found.codes and found.codes[0] in wanted:
            return found.codes[0], found.words
    return None
