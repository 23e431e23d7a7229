"""The figure of an evaluation: what the model loses by policy, and what each head loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from regard.eviction.loss import Loss
from regard.plots.colours import colormap
from regard.plots.curves import COLOURS
from regard.plots.drawing import HIDDEN, SOFT, blank

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw"]

# KL below this share of the largest is drawn at the lower edge of the logarithmic axis.
FLOOR = 1e-4


def draw(losses: Sequence[Loss], layers: Sequence[int], prompt: int, found: float | None) -> Figure:
    """KL of the next token by policy and share; below it, a panel for each policy with the attention that
    each head loses at the smallest share. `found` is how often all keys find the needle."""
    by_policy: dict[str, list[Loss]] = {}
    for loss in sorted(losses, key=lambda loss: loss.keep):
        by_policy.setdefault(loss.policy, []).append(loss)
    # In the order in which the policies were given.
    by_policy = {name: by_policy[name] for name in dict.fromkeys(loss.policy for loss in losses)}
    low = max(1e-12, FLOOR * max(loss.kl for loss in losses))
    figure = blank(max(7.0, 1.15 * len(by_policy) + 1.0), 6.8)
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.0, 1.1])
    above, below = parts
    axes = above.subplots()
    if len({loss.keep for loss in losses}) > 1:
        _draw_lines(axes, by_policy, low, None if found is None else f"answer found; all keys: {found:.0%}")
    else:
        _draw_points(axes, by_policy, low)
    axes.set_title(f"Cutting the cache of a prompt of {prompt:,} tokens", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, labelcolor=SOFT, color=SOFT)
    _draw_heads(below, [own[0] for own in by_policy.values()], layers)
    return figure


def _draw_lines(axes: Axes, by_policy: dict[str, list[Loss]], low: float, title: str | None) -> None:
    for number, (name, own) in enumerate(by_policy.items()):
        style = {"color": COLOURS[number % len(COLOURS)], "linewidth": 1.8, "marker": "o", "markersize": 4}
        if number >= len(COLOURS):
            style["linestyle"] = "--"
        label = f"{name}{_found(own)}"
        axes.plot(
            [100 * loss.keep for loss in own], [max(low, loss.kl) for loss in own], label=label, **style
        )
    axes.set_yscale("log")
    _plain_numbers(axes.yaxis)
    axes.set_xlabel("keys kept (%)", color=SOFT)
    axes.set_ylabel("KL of the next token (nats)", color=SOFT)
    axes.grid(color="#eceef1", linewidth=0.8)
    beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False}
    axes.legend(fontsize=8, title=title, title_fontsize=8, **beside)


def _draw_points(axes: Axes, by_policy: dict[str, list[Loss]], low: float) -> None:
    """One share: a point for each policy, the smallest loss on top."""
    losses = sorted((own[0] for own in by_policy.values()), key=lambda loss: -loss.kl)
    order = list(by_policy)
    for row, loss in enumerate(losses):
        colour = COLOURS[order.index(loss.policy) % len(COLOURS)]
        at = max(low, loss.kl)
        axes.plot([at], [row], "o", color=colour, markersize=7)
        beside = f"{loss.kl:.4f}{_found([loss]).replace(':', ', found')}"
        style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8, "color": SOFT}
        axes.annotate(beside, (at, row), (8, 0), **style)
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis)
    axes.margins(0.12, 0.12)
    axes.set_yticks(range(len(losses)), [loss.policy for loss in losses])
    axes.set_xlabel(f"KL of the next token (nats), {losses[0].keep:.0%} of the keys kept", color=SOFT)
    axes.grid(axis="x", color="#eceef1", linewidth=0.8)
    axes.set_axisbelow(True)


def _draw_heads(figure: SubFigure, losses: list[Loss], layers: Sequence[int]) -> None:
    colours = colormap().with_extremes(bad=HIDDEN)
    panels = figure.subplots(1, len(losses), sharey=True, squeeze=False)[0]
    image: Any = None
    for panel, loss in zip(panels, losses, strict=True):
        rows = loss.mass_lost.double().numpy()
        image = panel.imshow(rows, cmap=colours, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
        mean = float(torch.nanmean(loss.mass_lost))
        panel.set_title(f"{loss.policy}\nmean {mean:.0%}", fontsize=8, color=SOFT)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0, labelsize=8, labelcolor=SOFT)
        panel.set_xlabel("head", color=SOFT, fontsize=8)
        panel.xaxis.get_major_locator().set_params(integer=True, nbins=4)
    step = max(1, -(-len(layers) // 10))
    panels[0].set_yticks(range(0, len(layers), step), [str(layer) for layer in layers[::step]])
    panels[0].set_ylabel("layer", color=SOFT, fontsize=8)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.9, pad=0.015, format="{x:.0%}")
    bar.set_label(f"attention that is lost, {losses[0].keep:.0%} of the keys kept", color=SOFT, fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT)


def _plain_numbers(axis: Axis) -> None:
    """0.02 and not 2 × 10⁻², at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _found(losses: list[Loss]) -> str:
    """How often the answer was found, by share; nothing without a needle."""
    if losses[0].found is None:
        return ""
    return ": " + ", ".join(f"{loss.found:.0%}" for loss in losses)
