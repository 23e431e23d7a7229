"""Figures of a corpus atlas: kinds with error bars, and heads between two measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.corpus.heads import CorpusHead
from regard.corpus.state import MEASURES
from regard.errors import CorpusError
from regard.plots.drawing import SOFT, blank

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["kinds_figure", "scatter"]

# The number of heads to draw per kind.
BEST = 8


def kinds_figure(heads: Sequence[CorpusHead]) -> Figure:
    """For each kind, the heads with the largest share of documents, with 95 % intervals."""
    kinds = [name for name in heads[0].kinds if any(head.kinds[name].found for head in heads)]
    if not kinds:
        raise CorpusError("no head is of any kind in any document: there is nothing to draw.")
    figure = blank(8.0, 0.4 + 1.25 * ((len(kinds) + 1) // 2))
    axes = figure.subplots((len(kinds) + 1) // 2, 2, squeeze=False).flatten()
    for name, axis in zip(kinds, axes, strict=False):
        best = sorted(heads, key=lambda head: -(head.kinds[name].value or 0))[:BEST]
        shown = [head for head in best if head.kinds[name].found]
        middle = [head.kinds[name].value or 0.0 for head in shown]
        below = [y - head.kinds[name].low for y, head in zip(middle, shown, strict=True)]
        above = [head.kinds[name].high - y for y, head in zip(middle, shown, strict=True)]
        places = range(len(shown))
        axis.errorbar(places, middle, yerr=[below, above], fmt="o", ms=4, lw=1, capsize=2, color="#2b6cb0")
        axis.set_xticks(places, [f"{head.layer}.{head.head}" for head in shown])
        axis.set_xlim(-0.5, BEST - 0.5)
        axis.set_ylim(-0.05, 1.05)
        axis.set_title(name, fontsize=9, loc="left")
        _quiet(axis)
    for axis in axes[len(kinds) :]:
        axis.set_visible(False)
    figure.supylabel("share of documents", fontsize=9, color=SOFT)
    return figure


def scatter(heads: Sequence[CorpusHead], x: str, y: str) -> Figure:
    """Every head between two measures, with their 95 % intervals; one colour for each kind."""
    for name in (x, y):
        if name not in MEASURES:
            raise CorpusError(f"there is no measure {name!r}; measures are: {', '.join(MEASURES)}.")
    figure = blank(6.4, 4.8)
    axes = figure.subplots()
    groups: dict[str, list] = {}
    for head in heads:
        if head.measures[x].value is not None and head.measures[y].value is not None:
            groups.setdefault(head.kind or "no kind", []).append(head)
    for name in sorted(groups, key=lambda name: (name == "no kind", name)):
        members = groups[name]
        values = [[head.measures[m].value for head in members] for m in (x, y)]
        halves = [[head.measures[m].half_width or 0.0 for head in members] for m in (x, y)]
        colour = {"color": "#b8b8b8"} if name == "no kind" else {}
        axes.errorbar(*values, yerr=halves[1], xerr=halves[0], fmt="o", ms=4, lw=0.8, label=name, **colour)
    axes.set_xlabel(x.replace("_", " "), color=SOFT)
    axes.set_ylabel(y.replace("_", " "), color=SOFT)
    axes.legend(fontsize=8, frameon=False)
    _quiet(axes)
    return figure


def _quiet(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=SOFT)
