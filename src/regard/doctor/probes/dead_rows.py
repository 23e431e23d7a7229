"""Queries that may attend to nothing."""

from __future__ import annotations

import torch

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.masks import holed
from regard.doctor.modules import ModuleSubject
from regard.doctor.subject import BATCH

__all__ = ["dead_rows"]


def dead_rows(case: Case) -> None:
    """Mask all keys of one query (or one whole sequence) and check for NaN; this gives a remark, not a
    finding."""
    subject, state, n = case.subject, case.subject.sample(), case.subject.length
    if isinstance(subject, FunctionSubject) and subject.mask:
        allowed = holed(subject.mask, BATCH, n, n)
        if subject.mask.by_key:
            allowed[:] = False
        allowed[..., 1, :] = False
        out = subject.run(state, allowed=allowed)
        what = f"a query whose {subject.mask.name} allows no key"
    elif isinstance(subject, ModuleSubject) and subject.padding:
        keep = torch.ones(subject.batch, n, dtype=torch.bool)
        keep[0] = False
        out = subject.run(state, keep=keep)
        what = f"a sequence whose {subject.padding.name} marks padding only"
    else:
        return
    count = int(out.isnan().any(-1).sum())
    if not count:
        return
    evidence = f"{what} makes {count} of {out.shape[0] * out.shape[1]} rows NaN"
    advice = (
        "as its library has it"
        if subject.own
        else ("as softmax of -inf alone does; where such queries occur, set their rows to 0 after softmax")
    )
    case.note(f"{evidence}, {advice}")
