"""Positions: a rotary score knows the distance and nothing else, and some layers do without any.

    python examples/positions.py [--out DIR]

One query and one key, turned by their positions. Moved along the text together their score stays the same;
moved apart it changes. The figure is that score over the distance: fast pairs of numbers tell neighbours
apart, slow ones far from near. Then the scheme of a model with a context of millions: three layers of four
have rotary positions and see only their own chunk, the fourth sees everything and has no positions at all,
so that nothing in it can be further away than it has ever been in training.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from regard.masks import Causal, Chunk
from regard.plots import curves
from regard.scores import Interleaved, Rotary

DIM = 64
CHUNK, CONTEXT = 8192, 131072


def turned(rotary: Rotary, x: torch.Tensor, position: int) -> torch.Tensor:
    """A vector as it looks at a position."""
    return rotary.rotate(x.view(1, 1, 1, -1), offset=position).flatten()


def main(out: Path | None = None) -> dict[str, float]:
    """Move a pair along and apart; then list the layers of an interleaved model."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    q = torch.randn(DIM, dtype=torch.float64)
    k = q + 0.3 * torch.randn(DIM, dtype=torch.float64)  # alike, so that distance is what can part them
    rotary = Rotary(DIM)
    together = [float(turned(rotary, q, start + 7) @ turned(rotary, k, start)) for start in (0, 100, 5000)]
    print("a distance of 7, anywhere in the text: " + ", ".join(f"{score:.6f}" for score in together))
    distances = list(range(0, 257))
    lines = {}
    for theta in (10_000.0, 500_000.0):
        turning = Rotary(DIM, theta=theta)
        scores = [float(turned(turning, q, 256) @ turned(turning, k, 256 - d)) for d in distances]
        lines[f"θ = {theta:,.0f}"] = (distances, scores)
        print(f"θ = {theta:,.0f}: score at distance 0, 1, 16, 256: ", end="")
        print(", ".join(f"{scores[d]:.1f}" for d in (0, 1, 16, 256)))
    figure = curves(lines, x_title="distance", y_title="score", title="One query and one key, moved apart")
    figure.savefig(folder / "positions.png", dpi=110)

    scheme = Interleaved(rotary, every=4)
    full, chunked = Causal(), Causal() & Chunk(CHUNK)
    print("layer   positions     sees")
    for layer in range(4):
        kind = type(scheme.layer(layer)).__name__
        print(f"{layer:5}   {kind:10}   {'its chunk of 8192' if kind == 'Rotary' else 'everything'}")
    share = (3 * chunked.pairs(CONTEXT) + full.pairs(CONTEXT)) / (4 * full.pairs(CONTEXT))
    furthest = CHUNK - 1
    print(f"at {CONTEXT:,} tokens: {share:.0%} of the pairs of full layers; no rotation beyond {furthest:,}")
    print(f"figures: {folder}")
    return {"spread": max(together) - min(together), "share": share}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
