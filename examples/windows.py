"""Windows and receptive fields: how far a token can see after several layers that each see little.

    python examples/windows.py [--out DIR]

One layer with a window of w keys sees w − 1 tokens back; a second layer sees what those have seen, and so
on: L layers reach L(w − 1) back. Chunks never reach over their border, until a layer that sees everything
is put between them. The figures show the masks of one layer, and how many of 256 tokens have reached the
last one after each layer. The masks are multiplied as they are, True and False; whether a model uses what
could reach it is another question, which `regard.atlas` asks.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from regard.masks import Causal, Chunk, Longformer, Mask, Strided, Window
from regard.plots import curves, mask_figure

TOKENS, LAYERS = 256, 12
FULL = Causal()
STACKS: dict[str, list[Mask]] = {
    "window of 16": [FULL & Window(16)] * LAYERS,
    "window of 16, every 4th layer full": ([FULL & Window(16)] * 3 + [FULL]) * (LAYERS // 4),
    "chunks of 64": [FULL & Chunk(64)] * LAYERS,
    "chunks of 64, every 4th layer full": ([FULL & Chunk(64)] * 3 + [FULL]) * (LAYERS // 4),
    "every 16th and the last 16": [FULL & (Window(16) | Strided(16))] * LAYERS,
}


def reached(stack: list[Mask]) -> list[int]:
    """How many tokens have had a way to the last one, after each layer."""
    # One row of the product of all maps: from the last token down, who could have been seen.
    allowed, counts = [mask.dense(TOKENS) for mask in stack], []
    for depth in range(1, len(stack) + 1):
        seen = torch.arange(TOKENS) == TOKENS - 1
        for layer in reversed(allowed[:depth]):
            seen = seen | layer[seen].any(0)
        counts.append(int(seen.sum()))
    return counts


def main(out: Path | None = None) -> dict[str, list[int]]:
    """Print and draw the reach of every stack."""
    folder = out or Path(tempfile.mkdtemp())
    found = {name: reached(stack) for name, stack in STACKS.items()}
    print(f"of {TOKENS} tokens, how many have reached the last one after so many layers:")
    print(f"{'':36}     1     2     4     8    12   pairs in all layers, of all")
    every = LAYERS * FULL.pairs(TOKENS)
    for name, counts in found.items():
        pairs = sum(mask.pairs(TOKENS) for mask in STACKS[name]) / every
        row = "".join(f"{counts[depth - 1]:6}" for depth in (1, 2, 4, 8, 12))
        print(f"{name:36}{row}   {pairs:.0%}")
    lines = {name: (range(1, LAYERS + 1), counts) for name, counts in found.items()}
    figure = curves(lines, x_title="layers", y_title="tokens reaching the last", title="Receptive fields")
    figure.axes[0].legend(loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=2, frameon=False, fontsize=8)
    figure.savefig(folder / "windows.png")

    drawn = {
        "windows_sliding": FULL & Window(8),
        "windows_chunks": FULL & Chunk(8),
        "windows_longformer": Longformer(window=8, global_tokens=1),
    }
    for name, mask in drawn.items():
        mask_figure(mask, 32).savefig(folder / f"{name}.png", dpi=90)
    print(f"figures: {folder}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
