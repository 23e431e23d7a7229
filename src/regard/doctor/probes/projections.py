"""Checks the projections of a module: each must be used, as its name says, and one must be for the output."""

from __future__ import annotations

import torch

from regard.doctor.case import Case
from regard.doctor.fit import Fit
from regard.doctor.modules import ModuleSubject
from regard.doctor.readings import Reading, meant_for

__all__ = ["projections"]


def projections(case: Case, found: Fit | None) -> None:
    """Compare the effect of each projection with its name."""
    subject = case.subject
    if not isinstance(subject, ModuleSubject) or subject.own:
        return
    idle = subject.unused()
    if found is not None:
        _output(case, subject, found.convention, found.error, idle)
    inputs = [name for name in idle if meant_for([name]) in ("query", "key", "value")]
    if inputs and not case.findings:
        case.find("projection-unused", f"{', '.join(inputs)} is held and never takes part in the output")
    elif found is None:
        _dead(case, subject)
    elif not case.findings:
        _names(case, subject, found.convention)
        _arguments(case, subject)


def _dead(case: Case, subject: ModuleSubject) -> None:
    """Report a product, or a third of a fused one, that has no effect if one part is missing."""
    roles = subject.anatomy.roles
    missing = [role for role in ("query", "key", "value") if not getattr(roles, role)]
    if len(missing) != 1 or case.findings:
        return
    for index, places in subject.anatomy.places.items():
        idle, columns = sum(i == index for i, _ in roles.dead), places.shape[-1]
        if idle and (idle == columns or idle * 3 == columns):
            name = " + ".join(
                sorted(one.removesuffix(".weight") for one in subject.anatomy.products[index].names)
            )
            part = "the output" if idle == columns else f"{idle} of the {columns} columns of the output"
            case.find(
                "projection-unused", f"{part} of {name} moves nothing, and no other part acts as {missing[0]}"
            )
            return


def _arguments(case: Case, subject: ModuleSubject) -> None:
    """Report exchanged arguments: the key argument acts linearly, as a value, and the value argument as a
    key."""
    if not subject.parameters.triple or subject.listed:
        return
    _, key, value = subject.parameters.triple
    straight = {name: _straight(subject, name) for name in (key, value)}
    if straight[key] is True and straight[value] is False:
        case.find("parts-swapped", f"what is passed as {key} is used as values, and {value} as keys")


def _straight(subject: ModuleSubject, name: str) -> bool | None:
    """Whether the head outputs are linear in one argument; None if they don't depend on it."""
    state, products = subject.sample(), len(subject.anatomy.products)
    step = torch.zeros_like(state)
    step[:, 1] = torch.randn(state.shape[-1], generator=torch.Generator().manual_seed(3))
    outs = []
    for sign in (0.0, 1.0, -1.0):
        out, seen = subject.watched(state, {}, **{name: subject.shaped(state + sign * step)})
        if len(seen.products) != products:
            return None
        outs.append(subject.anatomy.core(seen.products, out))
    moved = float((outs[1] - outs[0]).abs().max())
    size = float(outs[0].abs().max())
    if moved < 1e-5 * size:
        return None
    return float((outs[1] + outs[2] - 2 * outs[0]).abs().max()) < 1e-3 * moved


def _output(case: Case, subject: ModuleSubject, reading: Reading, error: float, idle: list[str]) -> None:
    """Report a missing output projection: the head outputs are returned side by side."""
    if subject.anatomy.after or reading.heads < 2 or reading.query is None:
        return
    outs = [name for name in idle if meant_for([name]) == "output"]
    who = f"{outs[0]} is held and never applied" if outs else "no weight but those of q, k and v takes part"
    case.find(
        "missing-output-projection",
        f"the output equals the {reading.heads} heads laid side by side to {error:.0e}; {who}",
    )


def _names(case: Case, subject: ModuleSubject, reading: Reading) -> None:
    """Report misnamed weights, such as a weight called key that computes values."""
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
