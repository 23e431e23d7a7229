"""Tile by tile: the same attention, without the matrix, and what the order of sums does to the last bits.

    python examples/tiles.py [--out DIR]

The idea behind FlashAttention in fifteen lines: go over the keys in tiles, keep for each query a running
maximum, a running sum and a running output, and correct all three when a larger score turns up. The result
is that of the whole matrix, to rounding. The first figure is the largest tensor each way makes: quadratic
for the matrix, linear for tiles of keys, and bounded where queries are cut into tiles as well, as regard
does it. The second is about rounding: the same sums in another order of tiles differ in their last bits, so
a kernel whose order depends on timing gives other bits on every run. regard keeps one order, and its bits.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.plots import curves

DIM = 32
LENGTHS = [256, 512, 1024, 2048, 4096]


class Largest(TorchDispatchMode):
    """Notices the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            self.elements = max(self.elements, one.numel() if isinstance(one, Tensor) else 0)
        return made


def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As textbooks write it: the whole matrix at once."""
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def tiled(q: Tensor, k: Tensor, v: Tensor, order: list[int], size: int) -> Tensor:
    """The same over tiles of keys, in any order."""
    top = q.new_full((len(q), 1), -math.inf)
    total, out = torch.zeros_like(top), torch.zeros_like(q)
    for start in order:
        scores = q @ k[start : start + size].mT / math.sqrt(q.shape[-1])
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, weights = (top - higher).exp(), (scores - higher).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights @ v[start : start + size]
        top = higher
    return out / total


def streamed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """regard's own stream of tiles; left to itself it would hand so plain a call to PyTorch's kernel."""
    return regard.attention(q, k, v, backend="torch")


def largest(function, *args) -> int:
    """The elements of the largest tensor a call makes."""
    with Largest() as seen:
        function(*args)
    return seen.elements


def main(out: Path | None = None, lengths: Sequence[int] = LENGTHS) -> dict[str, float]:
    """Compare results, sizes and bits; print and draw."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    sizes: dict[str, list[int]] = {"whole matrix": [], "tiles of 64 keys": [], "regard.attention": []}
    for n in lengths:
        q, k, v = torch.randn(3, n, DIM)
        starts = list(range(0, n, 64))
        error = (tiled(q, k, v, starts, 64) - whole(q, k, v)).abs().max().item()
        sizes["whole matrix"].append(largest(whole, q, k, v))
        sizes["tiles of 64 keys"].append(largest(tiled, q, k, v, starts, 64))
        sizes["regard.attention"].append(largest(streamed, q, k, v))
        print(f"n = {n:4}: largest tensor {sizes['whole matrix'][-1]:>10,} whole, ", end="")
        print(f"{sizes['tiles of 64 keys'][-1]:>7,} in tiles, ", end="")
        print(f"{sizes['regard.attention'][-1]:>7,} in regard; {'equal' if error < 1e-5 else error}")
    lines = {name: (lengths, elements) for name, elements in sizes.items()}
    figure = curves(lines, x_title="length", y_title="elements", title="The largest tensor", logarithmic=True)
    figure.axes[0].set_xticks(lengths, lengths)
    figure.axes[0].minorticks_off()
    figure.savefig(folder / "tiles.png")

    q, k, v = torch.randn(3, 1024, DIM)
    results = [tiled(q, k, v, [64 * int(i) for i in torch.randperm(16)], 64) for _ in range(20)]
    differ = sum(not torch.equal(results[0], other) for other in results[1:])
    print(f"tiles in 20 random orders: {differ} of 19 differ from the first in their bits")
    again = [streamed(q, k, v) for _ in range(20)]
    same = sum(torch.equal(again[0], other) for other in again[1:])
    print(f"regard.attention 20 times: {same} of 19 have the same bits")
    runs = {"tiles in a random order": results, "regard.attention": again}
    shares = {name: [(one != made[0]).float().mean().item() for one in made] for name, made in runs.items()}
    lines = {name: (range(1, 21), share) for name, share in shares.items()}
    figure = curves(
        lines, x_title="run", y_title="share of numbers", title="Numbers that differ from the first run"
    )
    figure.savefig(folder / "tiles_bits.png")
    print(f"figures: {folder}")
    return {
        "differ": differ,
        "same": same,
        "whole": sizes["whole matrix"][-1],
        "tiles": sizes["regard.attention"][-1],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
