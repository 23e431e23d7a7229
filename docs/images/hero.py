"""Draws hero.png: one head's attention weights under four masks, computed by regard.

The head is made up, not trained: every token has one of a few kinds, queries look for their own kind, and
rotary positions make near keys easier to find than far ones. All that differs between the panels is the mask.

    python docs/images/hero.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from regard import Causal, Documents, attention
from regard.masks import BigBird, Mask, StreamingSinks
from regard.scores import Rotary

LENGTH, DIM, CELL = 80, 64, 4  # CELL: pixels, a whole number so that every cell is equally sharp
PANELS: dict[str, Mask] = {
    "Causal()": Causal(),
    "StreamingSinks(sinks=2, window=20)": StreamingSinks(sinks=2, window=20),
    "Causal() & Documents([26, 34, 20])": Causal() & Documents([26, 34, 20]),
    "BigBird(8, 80, 3, 1, 1)": BigBird(8, LENGTH, window_blocks=3, random_blocks=1, global_blocks=1),
}
PAGE, TEXT = "#0f1318", "#aeb8c6"


def head() -> tuple[Tensor, Tensor]:
    """Queries and keys of shape (1, 1, length, dim), at their positions."""
    torch.manual_seed(5)
    q, k = torch.zeros(2, LENGTH, DIM)
    # Rotary pairs dimension i with i + 32 and turns the first pairs fastest: they tell near from far.
    # The last ones hardly turn, so what a token is can be put there.
    fast, slow = [*range(8), *range(32, 40)], [*range(16, 31), *range(48, 63)]
    q[:, fast] = k[:, fast] = 1.0
    kinds = torch.randn(8, len(slow))[torch.randint(8, (LENGTH,))]
    q[:, slow] = 0.95 * kinds
    k[:, slow] = kinds + 0.35 * torch.randn(LENGTH, len(slow))
    q[:, 31], k[:, 31], k[0, 31] = (
        4.0,
        3.0 * torch.rand(LENGTH),
        7.5,
    )  # every query likes token 0, as trained ones do
    return Rotary(DIM).rotate_pair(q[None, None], k[None, None])


def weights(mask: Mask) -> Tensor:
    """All weights of the head: attending to one-hot values gives back the weights themselves."""
    q, k = head()
    return attention(q, k, torch.eye(LENGTH)[None, None], mask)[0, 0]


def draw() -> Figure:
    side, gap, top = LENGTH * CELL, 24, 46
    width, height = 4 * side + 5 * gap, side + top + gap
    figure = Figure(figsize=(width / 100, height / 100), dpi=100, facecolor=PAGE)
    FigureCanvasAgg(figure)
    # Magma without its black end: a weight of nearly 0 still shows that the pair may attend.
    heat = ListedColormap(colormaps["magma"](torch.linspace(0.13, 1.0, 256).numpy()))
    heat.set_bad(PAGE)
    for column, (name, mask) in enumerate(PANELS.items()):
        left = gap + column * (side + gap)
        axes = figure.add_axes((left / width, gap / height, side / width, side / height))
        shown = weights(mask).masked_fill(~mask.dense(LENGTH), torch.nan)
        axes.imshow(shown, cmap=heat, norm=PowerNorm(0.55, 0.0, 0.32), interpolation="nearest")
        axes.set_axis_off()
        figure.text(
            left / width,
            1 - 0.6 * top / height,
            name,
            color=TEXT,
            family="monospace",
            fontsize=11,
            va="center",
        )
    return figure


if __name__ == "__main__":
    draw().savefig(Path(__file__).with_suffix(".png"))
