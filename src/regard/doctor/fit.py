"""Fits recipes to a subject: finds the one that computes its output, healthy or with a known mistake."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from regard.doctor.influence import difference
from regard.doctor.recipe import Recipe, pattern
from regard.doctor.slips import ALONE, SLIPS, Slip, healthy_forms, pairs_of_slips
from regard.doctor.subject import Scenario, Subject

__all__ = ["TOLERANCE", "Fit", "Fitting"]

TOLERANCE = 5e-5
# Unusual healthy forms to combine with single mistakes.
RARE = 48
Setting = tuple[Any, Recipe, tuple[str, Tensor]]


@dataclass(frozen=True)
class Fit:
    """A recipe that gives the subject's output, its mistakes, and the errors of this and the healthy
    recipe."""

    recipe: Recipe
    convention: Any
    codes: tuple[str, ...]
    words: str
    error: float
    healthy_error: float
    pattern: str = ""
    # The recipe without its mistakes, and the pairs that may attend then.
    base: Recipe = field(default_factory=Recipe)
    allowed: Tensor | None = None


@dataclass
class Fitting:
    """Compares one scenario of a subject with recipes."""

    subject: Subject
    scenario: Scenario
    state: Any
    seen: Tensor | None = None
    positional: bool = True
    normed: bool = False
    named: bool = True
    caps: tuple[float, ...] = ()
    best: float = math.inf
    nearest: tuple[float, str] = (math.inf, "")
    _settings: list[Setting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out, self.inside = self.subject.core(self.state, self.scenario)
        patterns = self._patterns(self.out.shape[1])
        forms = healthy_forms(self.positional, self.normed)
        forms += [replace(base, cap=cap) for cap in self.caps for base in forms]
        self._settings = [
            (convention, base, item)
            for base in forms
            for convention in self.subject.conventions()
            for item in patterns.items()
        ]

    def like(self, other: Fit) -> Fitting:
        """This fitting with the reading of another scenario that fits."""
        mine = [item for item in self._settings if item[1] == Recipe() and item[0] == other.convention]
        self._settings = [(convention, other.recipe, item) for convention, _, item in mine]
        return self

    def fit(self, pairs: bool = True) -> Fit | None:
        """The healthy recipe if it fits, else that of one mistake or of two; None if nothing known fits."""
        for convention, base, (name, allowed) in self._settings:
            error = self.error(convention, allowed, base)
            self.best = min(self.best, error)
            if error < TOLERANCE:
                return Fit(base, convention, (), "", error, error, name, base, allowed)
        self.nearest = (self.best, "the healthy formula")
        usual = self._usual()
        known = {id(setting) for setting in usual}
        rare = [setting for setting in self._settings if id(setting) not in known][:RARE]
        plain = [(slip,) for slip in SLIPS if slip.code not in ALONE]
        return (
            self._mistaken(usual, ((slip,) for slip in SLIPS))
            or self._other_scale()
            or self._mistaken(rare, plain)
            or self._mistaken(self._turned(), ((slip,) for slip in SLIPS if "turned" in slip.change))
            or (self._mistaken(usual[:12], pairs_of_slips()) if pairs else None)
        )

    def _usual(self) -> list[Setting]:
        """The settings to try pairs of mistakes with: the most common forms and readings."""
        plain = [s for s in self._settings if s[1].base == 1e4 and s[1].part == 1 and s[1].turn == 1]
        return [s for s in plain if s[1].norm is None][:24]

    def _turned(self) -> list[Setting]:
        """Mistakes with rotary positions: if only q or only k is rotated, the order of keys doesn't show
        it."""
        forms = [base for base in healthy_forms(True, False) if base.rotary]
        known = [(convention, item) for convention, base, item in self._settings if base == Recipe()]
        return [(convention, base, item) for base in forms for convention, item in known[:4]]

    def _mistaken(self, settings: list[Setting], choices: Iterable[tuple[Slip, ...]]) -> Fit | None:
        """The first of these mistakes, or combinations of them, that gives the output."""
        for slips in choices:
            if not self.named and any(slip.named for slip in slips):
                continue
            sided = any("turned" in slip.change for slip in slips)
            for convention, base, (name, allowed) in settings:
                # Rotary positions on one side alone do not show in the order of keys.
                if base.rotary and not self.positional and not sided:
                    continue
                # After a norm the scale is in its gains.
                if base.norm and any("scale" in slip.change for slip in slips):
                    continue
                made: tuple[Recipe, Tensor] | None = (base, allowed)
                for slip in slips:
                    made = slip.made(*made) if made else None
                if made is None or (made[0].norm != base.norm and base.norm):
                    continue
                error = self.error(convention, made[1], made[0])
                words = " and ".join(slip.words for slip in slips)
                self.nearest = min(self.nearest, (error, f"the formula with {words}"))
                if error < TOLERANCE:
                    codes = tuple(dict.fromkeys(slip.code for slip in slips))
                    return Fit(made[0], convention, codes, words, error, self.best, name, base, allowed)
        return None

    def _patterns(self, n: int) -> dict[str, Tensor]:
        scenario, seen = self.scenario, self.seen
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

    def error(self, convention: Any, allowed: Tensor, recipe: Recipe) -> float:
        """The error of a recipe, relative to the largest number; infinite if it can't be computed."""
        theirs, out = self.subject.expected(self.inside, convention, allowed, recipe), self.out
        if theirs is None or theirs.shape != out.shape:
            return math.inf
        rows = allowed.any(-1)
        # Leave out rows with nothing to attend to; the `dead_rows` probe judges them.
        rows = (
            rows.expand(out.shape[0], -1)
            if rows.dim() == 1
            else rows.reshape(-1, rows.shape[-1]).expand(len(out), -1)
        )
        if self.scenario.rows is not None:
            rows = rows & self.scenario.rows
        # `difference` treats NaN as equal to NaN, so an output of only NaN would match everything.
        if not bool(rows.any()) or not bool(out[rows].isfinite().any()):
            return math.inf
        return difference(out[rows], theirs[rows])

    def _scale(self, scale: float) -> tuple[str, str]:
        """The code and the description of a scale mistake: d_model instead of the width of q, or another."""
        width = self.subject.token_width
        if width and abs(scale * width**0.5 - 1) < 1e-3:
            return "scale-d-model", "scale 1/√d_model"
        return "wrong-scale", f"scale {scale:.4g}"

    def _other_scale(self) -> Fit | None:
        """Find an unknown scale by bisection of its logarithm."""
        for convention, base, (name, allowed) in self._usual():

            def error(log: float) -> float:
                made = replace(base, scale=math.exp(log))  # noqa: B023
                return self.error(convention, allowed, made)  # noqa: B023

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
                code, words = self._scale(math.exp(low))
                made = replace(base, scale=math.exp(low))
                return Fit(made, convention, (code,), words, error(low), self.best, name, base, allowed)
        return None
