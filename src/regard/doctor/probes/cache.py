"""Compares steps with a cache with the whole sequence at once."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.fit import TOLERANCE
from regard.doctor.influence import difference
from regard.doctor.modules import ModuleSubject
from regard.doctor.recipe import Recipe, pattern

__all__ = ["cache"]

NEW = (2, 1)


def cache(case: Case) -> None:
    """Pass the last tokens after the others, as generation does."""
    if isinstance(case.subject, FunctionSubject):
        _function(case, case.subject)
    elif isinstance(case.subject, ModuleSubject) and case.subject.cache_name and not case.subject.own:
        _module(case, case.subject)


def _function(case: Case, subject: FunctionSubject) -> None:
    scenario = next((s for s in subject.scenarios() if s.causal), None)
    if scenario is None:
        return
    q, k, v = subject.sample()
    whole = case.run((q, k, v), scenario)
    for new in NEW:
        try:
            out = case.run((q[:, :, -new:], k, v), scenario)
        except Exception:
            return
        error = difference(out, whole[:, -new:])
        if error < TOLERANCE:
            continue
        first = subject.expected((q[:, :, -new:], k, v), "", pattern("first", new, subject.length), Recipe())
        wrong_end = first is not None and difference(out, first) < TOLERANCE
        keys = subject.length
        evidence = f"{new} queries against {keys} keys miss the last {new} rows of the whole by {error:.1%}"
        if not case.options.cache:
            words = ", because the causal mask starts at the first key" if wrong_end else ""
            case.note(f"{evidence}{words}; a finding only where it is used with a cache (cache=True)")
        elif wrong_end:
            case.find(
                "causal-wrong-end", f"{evidence} and equal the formula with the mask aligned at the first key"
            )
        else:
            case.find("cache-mismatch", evidence)
        return


def _module(case: Case, subject: ModuleSubject) -> None:
    x = subject.sample()
    how: dict[str, Any] = {"use_cache": True} if "use_cache" in subject.parameters.names else {}
    whole = subject.run(x)
    wrong = []
    for new in NEW:
        try:
            held = _held(subject, x[:, :-new], how)
            if held is None:
                return
            with_cache = {subject.cache_name or "": held, **how}
            out = subject.run(x[:, -new:], **with_cache)
            inner, seen = subject.watched(x[:, -new:], {}, **copy.deepcopy(with_cache))
            inner = subject.anatomy.core(seen.products, inner)
        except Exception as error:
            return case.note(f"its cache could not be used ({type(error).__name__}: {error})")
        error = difference(out, whole[:, -new:])
        if error > TOLERANCE:
            wrong.append((new, inner, error))
    if not wrong:
        return
    new, inner, error = wrong[0]
    if wrong[-1][0] > 1 and _unmasked(case, subject, x, inner, new):
        return case.note(
            f"{new} tokens after a cache see one another, later ones too: with a cache it is right for one "
            "token at a time"
        )
    _name(case, subject, x, inner, new, error)


def _held(subject: ModuleSubject, x: Tensor, how: dict[str, Any]) -> Any:
    """The cache that a call returns beside its output; None if it returns none."""
    found = subject.run(x, raw=True, **how)
    if not isinstance(found, tuple):
        return None
    held = next((y for y in reversed(found) if y is not None), None)
    return None if held is None or held is found[0] or _is_map(held) else held


def _unmasked(case: Case, subject: ModuleSubject, x: Tensor, inner: Tensor, new: int) -> bool:
    """Whether several tokens after a cache match the formula without a mask, while a single one is
    correct."""
    fit = case.fits.get("plain")
    if fit is None:
        return False
    inside = subject.core(x, subject.scenarios()[0])[1]
    allowed = pattern("full", new, subject.length)
    theirs = subject.expected(inside, fit.convention, allowed, fit.recipe, queries=new)
    return theirs is not None and difference(inner, theirs) < TOLERANCE


def _is_map(held: Any) -> bool:
    """Whether the last returned value is the scores or weights of all pairs, not keys and values."""
    return isinstance(held, Tensor) and held.dim() >= 3 and held.shape[-1] == held.shape[-2]


def _name(case: Case, subject: ModuleSubject, x: Tensor, out: Tensor, new: int, error: float) -> None:
    """The cache mistake that gives this output."""
    fit = case.fits.get("plain")
    evidence = (
        f"{new} tokens after a cache of {subject.length - new} miss the same rows of the whole by {error:.1%}"
    )
    choices = (
        ("causal-wrong-end", "first", None, "the mask aligned at the first key"),
        ("rotary-cache-offset", "causal", subject.length - new, "positions that start again at zero"),
    )
    if fit is None:
        return case.find("cache-mismatch", evidence)
    for code, shape, restart, words in choices:
        recipe = Recipe(rotary=fit.recipe.rotary, base=fit.recipe.base, restart=restart)
        theirs = subject.expected(
            subject.core(x, subject.scenarios()[0])[1],
            fit.convention,
            pattern(shape, new, subject.length),
            recipe,
            queries=new,
        )
        if theirs is not None and difference(out, theirs) < TOLERANCE:
            return case.find(code, f"{evidence} and equal the formula with {words}")
    return case.find("cache-mismatch", evidence)
