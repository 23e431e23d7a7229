"""Padding: does a sequence's result depend on what its padding holds?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.doctor.case import Case, larger
from regard.doctor.fit import fit
from regard.doctor.influence import difference, rows_changed
from regard.doctor.recipe import pattern
from regard.doctor.subject import BATCH, LENGTH, Scenario

__all__ = ["holes", "leak", "padding"]

# Conventions that everybody shares: in these arguments 1 marks a token.
TOKENS = ("attention_mask",)


def holes(n: int = LENGTH) -> Tensor:
    """Which tokens count: all but the first and the last."""
    keep = torch.ones(BATCH, n, dtype=torch.bool)
    keep[:, 0] = keep[:, -1] = False
    return keep


def leak(case: Case, size: float = 1.0) -> tuple[Tensor, Tensor]:
    """Which of the tokens that count notice a change of padding, and the output."""
    subject: Any = case.subject
    keep, state = holes(), larger(subject.sample(), size)
    before = subject.run(state, keep=keep)
    after = subject.run(subject.change(subject.change(state, 0), LENGTH - 1), keep=keep)
    return rows_changed(before, after)[keep[0]], before


def padding(case: Case) -> None:
    """Change the padding and see whether a token notices."""
    subject: Any = case.subject
    found = getattr(subject, "padding", None)
    if not found:
        return
    noticed, out = leak(case)
    real = LENGTH - 2
    if found[0] in TOKENS and found[1] == "drop" and not bool(noticed.any()):
        case.find("mask-inverted", f"{found[0]} with 1 for tokens hides the tokens and shows the padding")
        return
    if not bool(noticed.any()):
        return
    evidence = f"{int(noticed.sum())} of {real} tokens change when the padding of {found[0]} changes"
    plain = subject.run(subject.sample())
    if difference(out, plain) < 1e-6:
        case.find("mask-ignored", f"{evidence}; the output is the same as without {found[0]}")
    elif _after_softmax(case):
        case.find("mask-after-softmax", f"{evidence}; the output equals the formula masked after softmax")
    elif subject.kind == "model" and subject.own:
        case.note(f"{evidence}: tokens meet outside attention too (convolution, recurrence, compressed keys)")
    else:
        case.find("padding-leak", evidence)


def _after_softmax(case: Case) -> bool:
    """Whether padding is cut off after it was counted, as far as the formula can tell."""
    subject: Any = case.subject
    keep = holes()
    for name in ("full", "causal"):
        allowed = pattern(name, LENGTH, LENGTH) & keep[:, None, None, :]
        scenario = Scenario("padded", lambda state: subject.run(state, keep=keep), allowed, rows=keep)
        found = fit(subject, scenario, subject.sample()) if subject.conventions() else None
        if found is not None and "mask-after-softmax" in found.codes:
            return True
    return False
