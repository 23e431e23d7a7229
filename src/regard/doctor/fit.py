"""Which recipe computes what the subject computes: the healthy one, or a known mistake."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

from regard.doctor.influence import difference
from regard.doctor.recipe import Recipe, pattern
from regard.doctor.subject import Scenario, Subject

__all__ = ["MISTAKES", "Fit", "fit"]

TOLERANCE = 5e-5
# A code and what it changes in the recipe; a pattern is a change of the mask. The more specific first.
MISTAKES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("missing-scale", "scale 1", {"scale": "none"}),
    ("scale-d-model", "scale 1/√d_model", {"scale": "d_model"}),
    ("scale-twice", "scale 1/d_k", {"scale": "twice"}),
    ("wrong-scale", "scale √d_k", {"scale": "multiplied"}),
    ("wrong-scale", "scale 1/√n", {"scale": "length"}),
    ("softmax-axis", "softmax over the queries", {"axis": -2}),
    ("softmax-axis", "softmax over the heads", {"axis": 1}),
    ("softmax-axis", "softmax over the batch", {"axis": 0}),
    ("mask-after-softmax", "the mask multiplied in after softmax", {"mask": "after"}),
    ("cannot-see-itself", "a causal mask without its diagonal", {"pattern": "strict"}),
    ("sees-one-ahead", "a causal mask with one diagonal too many", {"pattern": "ahead"}),
    ("mask-inverted", "the mask inverted", {"pattern": "inverted"}),
    ("heads-mixed", "heads split by a view without transpose", {"split": "view"}),
    ("heads-mixed", "heads joined by a reshape without transpose", {"merge": "view"}),
    ("heads-mixed", "heads split and joined without transpose", {"split": "view", "merge": "view"}),
    ("missing-output-projection", "the output projection left out", {"project": False}),
    ("gqa-order", "key heads tiled", {"groups": "tile"}),
    ("rotary-on-values", "rotary positions on v too", {"rotary_values": True}),
    ("rotary-mixed", "angles of pairs, rotation of halves", {"rotary": "mixed"}),
    ("rotary-mixed", "angles of halves, rotation of pairs", {"rotary": "mixed-pairs"}),
    ("softmax-dtype", "softmax in float16", {"softmax": torch.float16}),
    ("softmax-dtype", "softmax in bfloat16", {"softmax": torch.bfloat16}),
)


Choices = Iterable[tuple[tuple[str, str, dict[str, Any]], ...]]


@dataclass(frozen=True)
class Fit:
    """A recipe that gives the subject's output, its mistakes, and how far it and the healthy one are off."""

    recipe: Recipe
    convention: Any
    codes: tuple[str, ...]
    words: str
    error: float
    healthy_error: float
    pattern: str = ""


def fit(subject: Subject, scenario: Scenario, state: Any, seen: Tensor | None = None) -> Fit | None:
    """The healthy recipe if it fits, else that of one mistake or of two; None if nothing known fits.

    `seen` is the pattern of pairs that was found by experiment.
    """
    out = scenario.run(state)
    n = out.shape[1]
    patterns = _patterns(scenario, n, seen)
    settings = list(product(subject.conventions(), _rotaries(), patterns.items()))
    best = math.inf
    for convention, base, (name, allowed) in settings:
        error = _error(subject, scenario, state, out, convention, allowed, base)
        best = min(best, error)
        if error < TOLERANCE:
            return Fit(base, convention, (), "", error, error, name)
    found = _mistaken(subject, scenario, state, out, settings, best, ((m,) for m in MISTAKES))
    found = found or _other_scale(subject, scenario, state, out, settings, best)
    usual = [setting for setting in settings if setting[1].base == Recipe.base]
    return found or _mistaken(subject, scenario, state, out, usual, best, _pairs())


def _mistaken(
    subject: Subject,
    scenario: Scenario,
    state: Any,
    out: Tensor,
    settings: list[Any],
    best: float,
    choices: Choices,
) -> Fit | None:
    """The first of these mistakes, or combinations of them, that gives the output."""
    n = out.shape[1]
    for changes in choices:
        for convention, base, (name, allowed) in settings:
            made = _changed(base, allowed, changes, n)
            if made is None:
                continue
            error = _error(subject, scenario, state, out, convention, made[1], made[0])
            if error < TOLERANCE:
                codes = tuple(dict.fromkeys(code for code, _, _ in changes))
                words = " and ".join(said for _, said, _ in changes)
                return Fit(made[0], convention, codes, words, error, best, name)
    return None


def _patterns(scenario: Scenario, n: int, seen: Tensor | None) -> dict[str, Tensor]:
    if scenario.allowed is not None:
        return {"given": scenario.allowed}
    found = {"causal": pattern("causal", n, n)} if scenario.causal else {}
    if not scenario.causal:
        found = {"full": pattern("full", n, n), "causal": pattern("causal", n, n)}
        if seen is not None and not any(bool((seen == known).all()) for known in found.values()):
            found["seen"] = seen
    elif seen is not None and not bool(seen.triu(1).any()) and bool(seen.diagonal().all()):
        found["seen"] = seen
    return found


def _rotaries() -> list[Recipe]:
    return [
        Recipe(),
        *(Recipe(rotary=how, base=base) for how in ("halves", "interleaved") for base in (1e4, 5e5)),
    ]


def _pairs() -> Choices:
    """Two mistakes at once, of different settings; only those that people make together."""
    often = [m for m in MISTAKES if m[0] not in ("softmax-dtype", "missing-output-projection", "gqa-order")]
    return (pair for pair in combinations(often, 2) if not pair[0][2].keys() & pair[1][2].keys())


def _changed(
    base: Recipe, allowed: Tensor, changes: tuple[tuple[str, str, dict[str, Any]], ...], n: int
) -> tuple[Recipe, Tensor] | None:
    """The recipe with the mistakes made; None where one of them would change nothing."""
    recipe = base
    for _, _, change in changes:
        settings = dict(change)
        shape = settings.pop("pattern", None)
        if shape is not None:
            causal = bool((allowed == pattern("causal", n, n)).all())
            if not causal and shape != "inverted":
                return None
            allowed = ~allowed if shape == "inverted" else pattern(shape, n, n)
        if base.rotary is None and ("rotary_values" in settings or "rotary" in settings):
            return None
        if settings.get("mask") == "after" and bool(allowed.all()):
            return None
        recipe = replace(recipe, **settings)
    return recipe, allowed


def _error(
    subject: Subject,
    scenario: Scenario,
    state: Any,
    out: Tensor,
    convention: Any,
    allowed: Tensor,
    recipe: Recipe,
) -> float:
    theirs = subject.expected(state, convention, allowed, recipe)
    if theirs is None or theirs.shape != out.shape:
        return math.inf
    rows = allowed.any(-1)
    # Rows with nothing to attend to mean nothing and are judged elsewhere.
    rows = (
        rows.expand(out.shape[0], -1)
        if rows.dim() == 1
        else rows.reshape(-1, rows.shape[-1]).expand(len(out), -1)
    )
    if scenario.rows is not None:
        rows = rows & scenario.rows
    return difference(out[rows], theirs[rows]) if bool(rows.any()) else math.inf


def _other_scale(
    subject: Subject, scenario: Scenario, state: Any, out: Tensor, settings: list[Any], best: float
) -> Fit | None:
    """A scale that is none of the known ones, looked for by bisection of the error's logarithmic valley."""
    for convention, base, (name, allowed) in settings:

        def error(log: float) -> float:
            made = replace(base, scale=math.exp(log))  # noqa: B023
            return _error(subject, scenario, state, out, convention, allowed, made)  # noqa: B023

        grid = [-7 + 0.5 * step for step in range(23)]
        errors = [error(log) for log in grid]
        least = min(range(len(grid)), key=errors.__getitem__)
        if not math.isfinite(errors[least]) or errors[least] > 0.5:
            continue
        low, high = grid[max(least - 1, 0)], grid[min(least + 1, len(grid) - 1)]
        for _ in range(50):
            a, b = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, b) if error(a) < error(b) else (a, high)
        if error(low) < TOLERANCE:
            scale = math.exp(low)
            made = replace(base, scale=scale)
            return Fit(made, convention, ("wrong-scale",), f"scale {scale:.4g}", error(low), best, name)
    return None
