"""Checks that the output depends on the input and is finite, and that the input isn't overwritten."""

from __future__ import annotations

from dataclasses import replace

from regard.doctor.case import Case
from regard.doctor.influence import difference

__all__ = ["finite", "sane"]

OPPOSITE = {"allowed": "blocked", "blocked": "allowed", "ones": "zeros", "zeros": "ones"}


def sane(case: Case) -> None:
    """Check for an output that never changes, and for overwritten inputs."""
    subject = case.subject
    state = subject.sample()
    parts = list(state) if isinstance(state, tuple) else [state]
    before = [x.clone() for x in parts]
    out = subject.run(state)
    changed = [i for i, (x, y) in enumerate(zip(parts, before, strict=True)) if difference(x, y) > 0]
    if changed:
        names = subject.names()
        words = " and ".join(names.get("qkv"[i] if len(parts) > 1 else "x", "x") for i in changed)
        case.find("changes-input", f"after the call {words} holds other numbers than before")
    if not bool(out.isfinite().any()):
        return finite(case)
    if not bool(out.isfinite().all()):
        return
    other = subject.run(subject.sample(seed=1))
    if out.shape == other.shape and difference(out, other) < 1e-6:
        kind = "0" if not bool(out.any()) else "the same"
        case.find("constant-output", f"the output is {kind} for two different random inputs")
    return


def finite(case: Case) -> None:
    """Check for NaN and infinity that no other finding explains."""
    out = case.subject.run(case.subject.sample())
    bad = int((~out.isfinite()).sum())
    if bad and not case.findings and _upside_down(case):
        return case.find(
            "mask-inverted", "a mask that allows everything makes every output NaN; its opposite does not"
        )
    if bad and not case.findings:
        case.find(
            "nan-output", f"{bad} of {out.numel()} outputs are NaN or infinite for ordinary random input"
        )
    return None


def _upside_down(case: Case) -> bool:
    """Whether a required mask, whose meaning the caller passed, works the other way round."""
    mask = case.subject.mask
    if mask is None or case.options.mask not in OPPOSITE or mask.name not in case.subject.parameters.required:
        return False
    case.subject.mask = replace(mask, meaning=OPPOSITE[mask.meaning])
    try:
        return bool(case.subject.run(case.subject.sample()).isfinite().all())
    finally:
        case.subject.mask = mask
