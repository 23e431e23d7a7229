"""Softmax is a budget of one, and the most even way to spend it.

    python examples/softmax_budget.py [--out DIR]

A row of weights adds up to one whatever the scores: what one key gains the others lose, and where nothing
is worth looking at, the weight must go somewhere all the same, unless there is a sink to leave it in. The
second figure is about why softmax and nothing else: of all ways to spread one unit of weight with the same
mean score, softmax is the one with the highest entropy. 10,000 random steps away from it that keep both
the sum and the mean score are tried; every one of them loses entropy.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from regard import AttentionMap, Entropy
from regard.plots import curves

SCORES = torch.tensor([1.5, 1.0, 0.5, 0.0, -0.5, -1.0], dtype=torch.float64)
RAISED = [step / 5 for step in range(-20, 31)]
TRIED = 10_000


def row(scores: torch.Tensor, sink: float | None = None) -> AttentionMap:
    """The map of one query whose scores are these."""
    query = torch.ones(1, 1, 1, 1, dtype=scores.dtype)
    extra = None if sink is None else torch.tensor([sink], dtype=scores.dtype)
    return AttentionMap.of(query, scores.view(1, 1, -1, 1), scale=1.0, sink=extra)


def entropy_of(weights: torch.Tensor) -> torch.Tensor:
    """Σ −p log p of each row."""
    return -(weights * weights.log()).sum(-1)


def steps_away(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Random spreads with the same sum and the same mean score, and how far away each of them is."""
    kept = torch.stack([torch.ones_like(SCORES), SCORES])
    free = torch.linalg.svd(kept).Vh[2:]  # the directions that change neither
    away = torch.randn(TRIED, len(free), dtype=SCORES.dtype) @ free
    # As far as one likes, but no weight may become negative.
    room = (weights / (-away).clamp(min=1e-12)).amin(-1, keepdim=True)
    away = away * room * torch.rand(TRIED, 1, dtype=SCORES.dtype)
    return weights + away, away.norm(dim=-1)


def main(out: Path | None = None) -> dict[str, float]:
    """Raise one score, add a sink, and look for a spread that beats softmax."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    moved = [row(torch.cat([torch.tensor([raised]), SCORES[1:]])).row(0, 0, 0) for raised in RAISED]
    print("first score   its weight   the other five   together")
    for raised, weights in list(zip(RAISED, moved, strict=True))[::10]:
        print(f"{raised:11.1f}   {weights[0]:10.3f}   {weights[1:].sum():14.3f}   {weights.sum():8.3f}")
    left = row(SCORES - 5, sink=0.0).row(0, 0, 0).sum().item()
    print(
        f"all scores lowered by 5: together {row(SCORES - 5).row(0, 0, 0).sum():.3f}; with a sink {left:.3f}"
    )
    lines = {f"key {key}": (RAISED, [float(weights[key]) for weights in moved]) for key in range(6)}
    figure = curves(lines, x_title="score of key 0", y_title="weight", title="What one gains the others lose")
    figure.savefig(folder / "softmax_budget.png")

    best = row(SCORES)
    weights, entropy = best.row(0, 0, 0), best.stats(Entropy())["entropy"].item()
    others, distance = steps_away(weights)
    found = entropy_of(others.clamp(min=1e-300))
    print(f"entropy of softmax {entropy:.4f} nats; of {TRIED:,} others at most {found.max():.4f}")
    means = others @ SCORES
    print(f"the mean score of all of them: {means.min():.4f} to {means.max():.4f}")
    figure = curves(
        {"another spread": (distance[:1500].tolist(), found[:1500].tolist())},
        x_title="distance from softmax",
        y_title="entropy (nats)",
        title="The same sum, the same mean score",
    )
    figure.axes[0].lines[0].set(linestyle="", marker="o", markersize=2, alpha=0.5)
    figure.axes[0].get_legend().remove()
    figure.axes[0].axhline(entropy, color="#d3712b", linewidth=1.2)
    figure.savefig(folder / "softmax_budget_entropy.png", dpi=110)
    print(f"figures: {folder}")
    return {"softmax": entropy, "others": found.max().item(), "left": left}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
