"""Steps with a cache against the whole sequence at once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.fit import TOLERANCE
from regard.doctor.influence import difference
from regard.doctor.modules import ModuleSubject
from regard.doctor.recipe import Recipe, pattern
from regard.doctor.subject import LENGTH

__all__ = ["cache"]

NEW = (2, 1)


def cache(case: Case) -> None:
    """Give the last tokens after the others, as generation does."""
    if isinstance(case.subject, FunctionSubject):
        _function(case, case.subject)
    elif isinstance(case.subject, ModuleSubject) and case.subject.cache_name:
        _module(case, case.subject)


def _function(case: Case, subject: FunctionSubject) -> None:
    scenario = next((s for s in subject.scenarios() if s.causal), None)
    if scenario is None:
        return
    q, k, v = subject.sample()
    whole = scenario.run((q, k, v))
    for new in NEW:
        try:
            out = scenario.run((q[:, :, -new:], k, v))
        except Exception:
            return
        error = difference(out, whole[:, -new:])
        if error < TOLERANCE:
            continue
        first = subject.expected((q[:, :, -new:], k, v), "", pattern("first", new, LENGTH), Recipe())
        wrong_end = first is not None and difference(out, first) < TOLERANCE
        evidence = f"{new} queries against {LENGTH} keys miss the last {new} rows of the whole by {error:.1%}"
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
    how: dict[str, Any] = {"use_cache": True} if "use_cache" in subject.names else {}
    whole = subject.run(x)
    for new in NEW:
        try:
            found = subject.run(x[:, :-new], raw=True, **how)
            held = (
                next((y for y in reversed(found) if y is not None), None)
                if isinstance(found, tuple)
                else None
            )
            if held is None or held is found[0]:
                return
            out = subject.run(x[:, -new:], **{subject.cache_name or "": held}, **how)
        except Exception as error:
            return case.note(f"its cache could not be used ({type(error).__name__}: {error})")
        error = difference(out, whole[:, -new:])
        if error > TOLERANCE:
            return _name(case, subject, x, out, new, error)
    return None


def _name(case: Case, subject: ModuleSubject, x: Tensor, out: Tensor, new: int, error: float) -> None:
    """Which mistake with the cache gives this output."""
    fit = case.fits.get("plain")
    evidence = f"{new} tokens after a cache of {LENGTH - new} miss the same rows of the whole by {error:.1%}"
    choices = (
        ("causal-wrong-end", "first", None, "the mask aligned at the first key"),
        ("rotary-cache-offset", "causal", LENGTH - new, "positions that start again at zero"),
    )
    if fit is None:
        return case.find("cache-mismatch", evidence)
    for code, shape, restart, words in choices:
        recipe = Recipe(rotary=fit.recipe.rotary, base=fit.recipe.base, restart=restart)
        theirs = subject.expected(x, fit.convention, pattern(shape, new, LENGTH), recipe, queries=new)
        if theirs is not None and difference(out, theirs) < TOLERANCE:
            return case.find(code, f"{evidence} and equal the formula with {words}")
    return case.find("cache-mismatch", evidence)
