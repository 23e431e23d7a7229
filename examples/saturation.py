"""Saturation: the sharper softmax is, the less gradient comes through it.

    python examples/saturation.py [--out DIR]

One row of scores at temperatures from 0.05 to 20. Cold, one key takes everything; hot, all keys get the
same; and the slope of the weights over the scores, α_i (δ_ij − α_j), is gone at the cold end. Attention
without its 1/√d_k is attention at temperature 1/√d_k: the second figure sends a gradient back through
`regard.attention` and measures what reaches q. The larger d, the less, unless the scores are scaled.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import regard
from regard import Entropy
from regard.plots import curves

SCORES = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0], dtype=torch.float64)
TEMPERATURES = torch.logspace(math.log10(0.05), math.log10(20), 60).tolist()
DIMS = [2**power for power in range(2, 13)]


def at_temperature(temperature: float) -> tuple[float, float, float]:
    """The heaviest weight of the row, its entropy, and the size of the slope of weights over scores."""
    # One query of 1 against keys that are the scores: q·k is then the score itself.
    query, keys = torch.ones(1, 1, 1, 1, dtype=torch.float64), SCORES.view(1, 1, -1, 1)
    seen = regard.observe(query, keys, keys, scale=1 / temperature, stats=[Entropy()])
    weights = seen.map.row(0, 0, 0)
    jacobian = weights.diag() - weights.outer(weights)
    return weights.max().item(), seen.entropy.item(), jacobian.norm().item()


def gradient_reaching_q(d: int, scale: float) -> float:
    """The mean size of ∂out/∂q, each query's output being sent one random direction back."""
    q = torch.randn(16, 1, 128, d, requires_grad=True)
    k, v = torch.randn(16, 1, 64, d), torch.randn(16, 1, 64, 8)
    out = regard.attention(q, k, v, scale=scale)
    (slope,) = torch.autograd.grad(out, q, torch.randn_like(out))
    # Per unit of score: scores are q·k times the scale, so the scale is taken out again.
    return _size(slope) / (scale * math.sqrt(d))


def _size(slopes: Tensor) -> float:
    return slopes.norm(dim=-1).mean().item()


def main(out: Path | None = None, dims: Sequence[int] = DIMS) -> dict[str, float]:
    """Print a few temperatures and dims; draw all of them."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    print("temperature   heaviest weight   entropy (nats)   gradient")
    for temperature in (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0):
        top, entropy, slope = at_temperature(temperature)
        print(f"{temperature:11.2f}   {top:15.4f}   {entropy:14.4f}   {slope:8.4f}")
    rows = [at_temperature(temperature) for temperature in TEMPERATURES]
    names = ("heaviest weight", "entropy / log 8", "gradient")
    heights = (1.0, math.log(len(SCORES)), 1.0)
    lines = {name: (TEMPERATURES, [row[i] / heights[i] for row in rows]) for i, name in enumerate(names)}
    figure = curves(lines, x_title="temperature", y_title="", title="One row of eight scores")
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_xticks([0.05, 0.2, 1, 5, 20], ["0.05", "0.2", "1", "5", "20"])
    figure.axes[0].minorticks_off()
    figure.savefig(folder / "saturation.png")

    scaled = [gradient_reaching_q(d, 1 / math.sqrt(d)) for d in dims]
    plain = [gradient_reaching_q(d, 1.0) for d in dims]
    print("   d   gradient reaching q, scaled   not scaled")
    for d, with_scale, without in zip(dims, scaled, plain, strict=True):
        print(f"{d:4}   {with_scale:27.4f}   {without:10.4f}")
    lines = {"scaled by 1/√d": (dims, scaled), "not scaled": (dims, plain)}
    figure = curves(
        lines,
        x_title="d",
        y_title="gradient per unit of score",
        title="What reaches q through softmax over 64 keys",
    )
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_xticks(dims[::2], dims[::2])
    figure.axes[0].minorticks_off()
    figure.savefig(folder / "saturation_gradient.png")
    print(f"figures: {folder}")
    cold, warm = at_temperature(0.05)[2], at_temperature(1.0)[2]
    return {"cold": cold, "warm": warm, "scaled": scaled[-1], "plain": plain[-1]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
