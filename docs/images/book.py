"""Draws book.png: one head's map of a whole book, from 39,659 × 39,659 cells down to one weight.

Each panel shows the box of the panel before it. The last box is around the largest weight
between distant tokens. All panels are read from the same recording.

    python docs/images/book.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from regard.models import Recording, bundled, record, sample_book
from regard.plots import visible
from regard.stats import Pooled

LAYER, HEAD = 5, 5
BLOCK = 64  # tokens along each side of a pixel of the first panel
FAR = 20_000  # tokens back
SIDES = (2048, 128, 11)
LEAST = 1e-4  # smaller weights have the colour of this one
PAGE, TEXT, BOX = "#0f1318", "#aeb8c6", "#7fd4ff"


def main() -> None:
    """Record the book, about two minutes on two cores, and draw."""
    recording = record(bundled(), sample_book(), layers=[LAYER], stats=[Pooled(BLOCK, how="max")])
    figure = draw(recording)
    figure.savefig(Path(__file__).with_suffix(".png"))


def target(recording: Recording) -> tuple[int, int]:
    """The query and the key of the largest weight between tokens that are far apart."""
    blocks = recording.layers[LAYER].pooled[0, HEAD]
    rows, columns = torch.meshgrid(*(torch.arange(side) for side in blocks.shape), indexing="ij")
    far = blocks.where(rows - columns > FAR // BLOCK, 0.0)
    # Not the first tokens: every head looks at those when it has nothing else to look at.
    far[:, 0] = 0.0
    row, column = divmod(int(far.argmax()), blocks.shape[1])
    tile = recording.maps[LAYER][
        0, HEAD, row * BLOCK : (row + 1) * BLOCK, column * BLOCK : (column + 1) * BLOCK
    ]
    query, key = divmod(int(tile.argmax()), tile.shape[1])
    return row * BLOCK + query, column * BLOCK + key


def cells(recording: Recording, query: int, key: int, side: int) -> tuple[Tensor, int, int]:
    """The square of cells around one, at most 512 pixels wide, with its first query and key."""
    top, left = query - side // 2, key - side // 2
    tile = recording.maps[LAYER][0, HEAD, top : top + side, left : left + side]
    fold = max(1, side // 512)
    return tile.unflatten(0, (-1, fold)).unflatten(2, (-1, fold)).amax((1, 3)), top, left


def draw(recording: Recording) -> Figure:
    """Four panels in a row, each the box of the one before it."""
    query, key = target(recording)
    length = len(recording.tokens)
    side, gap, top = 352, 16, 48
    left_of_words = 58
    width, height = 4 * side + 5 * gap + left_of_words, side + top + 58
    figure = Figure(figsize=(width / 100, height / 100), dpi=100, facecolor=PAGE)
    FigureCanvasAgg(figure)
    shown = [(recording.layers[LAYER].pooled[0, HEAD], 0, 0, length)]
    shown += [(*cells(recording, query, key, one), one) for one in SIDES]
    heat = ListedColormap(colormaps["magma"](torch.linspace(0.06, 1.0, 256).numpy()))
    for number, (tile, first, begin, extent) in enumerate(shown):
        left = gap + number * (side + gap) + left_of_words * (number == 3)
        axes = figure.add_axes((left / width, 58 / height, side / width, side / height))
        box = (begin, begin + extent, first + extent, first)
        norm = LogNorm(LEAST, 1.0)
        axes.imshow(tile.clamp(LEAST), cmap=heat, norm=norm, interpolation="nearest", extent=box)
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_color(BOX if number else PAGE)
        figure.text(left / width, 1 - 30 / height, f"{extent:,} × {extent:,}", color=TEXT, fontsize=12)
        if number < 3:
            mark(axes, query, key, SIDES[number], extent)
        else:
            words(axes, recording, tile, first, begin)
    weight = float(recording.maps[LAYER][0, HEAD, query, key])
    said = (
        f"Layer {LAYER}, head {HEAD}: “{word(recording, query)}” gives {weight:.2f} of its attention to "
        f"“{word(recording, key)}”, {query - key:,} tokens back. "
        "Colours are logarithmic; blocks show their largest weight."
    )
    figure.text(gap / width, 22 / height, said, color=TEXT, fontsize=12)
    return figure


def mark(axes: Axes, query: int, key: int, side: int, extent: int) -> None:
    """The box of the next panel; one too small to see is drawn larger."""
    size = max(side, extent / 40)
    place = (key - size / 2, query - size / 2)
    axes.add_patch(Rectangle(place, size, size, fill=False, edgecolor=BOX, linewidth=1.2))


def words(axes: Axes, recording: Recording, tile: Tensor, first: int, begin: int) -> None:
    """The tokens along both sides, and the weights that round to something."""
    extent = len(tile)
    places = torch.arange(extent) + 0.5
    for row, column in (tile >= 0.005).nonzero().tolist():
        weight = float(tile[row, column])
        colour = PAGE if weight > 0.03 else TEXT
        place = (begin + column + 0.5, first + row + 0.5)
        axes.text(*place, f"{weight:.2f}", color=colour, fontsize=8, ha="center", va="center")
    axes.set_yticks(places + first, [word(recording, first + i) for i in range(extent)])
    axes.set_xticks(places + begin, [word(recording, begin + i) for i in range(extent)], rotation=90)
    axes.tick_params(colors=TEXT, labelsize=8, length=0)


def word(recording: Recording, position: int) -> str:
    """A token as it is shown."""
    return visible(recording.tokens[position].text).strip()


if __name__ == "__main__":
    main()
