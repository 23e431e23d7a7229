"""Queries that may attend to nothing."""

from __future__ import annotations

import torch

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.modules import ModuleSubject
from regard.doctor.subject import BATCH, LENGTH

__all__ = ["dead_rows"]


def dead_rows(case: Case) -> None:
    """Forbid one query (or one whole sequence) everything and look for NaN."""
    subject, state = case.subject, case.subject.sample()
    if isinstance(subject, FunctionSubject) and subject.mask_format:
        allowed = subject.some_mask(LENGTH)
        if subject.mask_format[0] == "bk":
            allowed[:] = False
        allowed[..., 1, :] = False
        out = subject.run(state, allowed=allowed)
        what = f"a query whose {subject.mask_name} allows no key"
    elif isinstance(subject, ModuleSubject) and subject.padding:
        keep = torch.ones(BATCH, LENGTH, dtype=torch.bool)
        keep[0] = False
        out = subject.run(state, keep=keep)
        what = f"a sequence whose {subject.padding[0]} marks padding only"
    else:
        return
    count = int(out.isnan().any(-1).sum())
    if not count:
        return
    evidence = f"{what} makes {count} of {out.shape[0] * out.shape[1]} rows NaN"
    if subject.own:
        case.note(f"{evidence}, as its library has it")
    else:
        case.find("dead-rows", evidence)
