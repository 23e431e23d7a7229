"""Compares the formula on many tokens: a fit on six tokens may not hold on more."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.fit import Fit
from regard.doctor.influence import difference
from regard.doctor.modules import ModuleSubject
from regard.doctor.recipe import pattern
from regard.doctor.subject import Scenario

__all__ = ["longer"]

LENGTHS = (256, 100, 40, 16)
# Sums over many keys are rounded more often than those over six.
TOLERANCE = 5e-4


def longer(case: Case, plain: Scenario, found: Fit) -> None:
    """Compare a long input with the recipe that fits a short one, also under windows of all widths."""
    if case.subject.own or found.pattern not in ("full", "causal", "seen"):
        return
    for n in LENGTHS:
        subject = _at(case.subject, n)
        if subject is None:
            continue
        try:
            out, inside = subject.core(subject.sample(n), plain)
        except Exception:
            continue
        if out.shape[1] == n and bool(out.isfinite().all()):
            return _judge(case, subject, found, out, inside)
    return None


def _at(subject: Any, n: int) -> Any:
    if isinstance(subject, ModuleSubject):
        try:
            return subject.longer(n)
        except Exception:
            return None
    if not isinstance(subject, FunctionSubject):
        return None
    large = copy.copy(subject)
    large.length = n
    return large


def _judge(case: Case, subject: Any, found: Fit, out: Tensor, inside: Any) -> None:
    n, least = out.shape[1], float("inf")
    seen = found.allowed
    causal = found.pattern == "causal" or (seen is not None and not bool(seen.triu(1).any()))
    for words, allowed in _patterns(n, causal):
        theirs = subject.expected(inside, found.convention, allowed, found.recipe)
        if theirs is None or theirs.shape != out.shape:
            return
        error = difference(out, theirs)
        least = min(least, error)
        if error < TOLERANCE:
            return case.note(f"on {n} tokens {words}") if words else None
    case.leave(
        f"it equals the formula on {case.subject.length} tokens, and on {n} "
        f"tokens it misses it by {least:.0%}, under any window: which keys take part, or what is done with "
        "them, changes with the length. Compare it with a reference of your own at the lengths you use"
    )
    return None


def _patterns(n: int, causal: bool) -> Iterator[tuple[str, Tensor]]:
    """The full pattern, windows of all widths, and blocks of all sizes."""
    ones = pattern("full", n, n)
    yield "", pattern("causal", n, n) if causal else ones
    if not causal:
        yield "", pattern("causal", n, n)
    place = torch.arange(n)
    for width in range(2, n):
        window = ones.tril().triu(1 - width)
        if causal:
            yield f"each query sees itself and the {width - 1} tokens before it", window
            continue
        yield f"each query sees {width - 1} tokens to either side", ones.tril(width - 1).triu(1 - width)
    for width in range(2, n):
        blocks = place[:, None] // width == place[None, :] // width
        yield f"queries see their own block of {width} tokens", blocks.tril() if causal else blocks
