"""Why scores are divided by √d_k: a dot product of d numbers grows like √d, and softmax cannot bear it.

    python examples/scale.py [--out DIR]

20,000 pairs of random vectors for every d from 4 to 4096, in groups of one query and 20 keys. The standard
deviation of their dot products follows √d to a per cent or two; divided by √d it stays at 1. The second
figure shows what softmax makes of either: unscaled, one key of the 20 takes nearly all the weight long
before d = 4096, although no key is any better than the others.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from regard import AttentionMap, TopK
from regard.plots import curves

QUERIES, KEYS = 1000, 20
DIMS = [2**power for power in range(2, 13)]


class Row(NamedTuple):
    """What one d shows: the spread of the scores, and the mean weight of the heaviest of 20 keys."""

    d: int
    spread: float
    scaled_spread: float
    heaviest: float
    scaled_heaviest: float


def measure(d: int) -> Row:
    """Score 20,000 pairs with scale 1 and with scale 1/√d."""
    spreads, tops = [], []
    q, k = torch.randn(QUERIES, 1, 1, d), torch.randn(QUERIES, 1, KEYS, d)
    for scale in (1.0, 1 / math.sqrt(d)):
        seen = AttentionMap.of(q, k, scale=scale)
        spreads.append(seen.scores(...).std().item())
        tops.append(seen.stats(TopK(1))["top_k"].weight.mean().item())
    return Row(d, *spreads, *tops)


def main(out: Path | None = None, dims: Sequence[int] = DIMS) -> list[Row]:
    """Measure every d, print the table, draw both figures."""
    torch.manual_seed(0)
    rows = [measure(d) for d in dims]
    print(f"{QUERIES * KEYS:,} pairs for every d")
    print("   d      √d   std of q·k   std of q·k/√d   heaviest of 20 keys   and scaled")
    for row in rows:
        spread = f"{row.d:4}  {math.sqrt(row.d):6.2f}  {row.spread:11.2f}  {row.scaled_spread:14.3f}"
        print(f"{spread}  {row.heaviest:20.3f}  {row.scaled_heaviest:11.3f}")

    folder = out or Path(tempfile.mkdtemp())
    lines = {
        "q · k": (dims, [row.spread for row in rows]),
        "√d": (dims, [math.sqrt(d) for d in dims]),
        "q · k / √d": (dims, [row.scaled_spread for row in rows]),
    }
    figure = curves(
        lines,
        x_title="d",
        y_title="standard deviation",
        logarithmic=True,
        title="20,000 dot products for every d",
    )
    # Measured and predicted lie on each other: dashes let both be seen.
    figure.axes[0].lines[1].set_linestyle((0, (2, 3)))
    figure.axes[0].set_xticks(dims[::2], dims[::2])
    figure.axes[0].minorticks_off()
    figure.savefig(folder / "scale.png")

    lines = {
        "unscaled": (dims, [row.heaviest for row in rows]),
        "scaled": (dims, [row.scaled_heaviest for row in rows]),
        "even": (dims, [1 / KEYS] * len(dims)),
    }
    figure = curves(lines, x_title="d", y_title="weight", title="The heaviest of 20 keys, on average")
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_xticks(dims[::2], dims[::2])
    figure.axes[0].minorticks_off()
    figure.savefig(folder / "scale_softmax.png")
    print(f"figures: {folder}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
