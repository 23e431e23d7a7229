"""A map that looks faithful and explains nothing: what a weight of 0.99 is worth.

    python examples/not_an_explanation.py [--out DIR]

First a head made by hand: it gives one token 0.99 of its weight, but that token's value is a thousandth as
long as the others', so what the head writes comes from elsewhere. Weighed by what it writes, α‖v‖, the map
is another map. Then the bundled model: its last token must copy a name. Each of the 54 heads
has a heaviest edge in that row, and each of these edges is cut in turn. Edges of equal weight turn out to
be worth anything between nothing and the prediction.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import regard
from regard.atlas import Edge
from regard.models import bundled, record
from regard.plots import curves, heatmap
from regard.stats import NormWeighted

WORDS = ["The", "film", "was", "not", "good", "."]
TEXT = "The heron was called Osgood. The badger said to the heron, whose name was Os"


def made_by_hand(folder: Path) -> tuple[float, float]:
    """One query over six keys: the share of the full stop by weight, and by what is written."""
    scores = torch.tensor([0.0, 0.5, 0.0, 1.0, 0.8, 6.4])
    values = torch.nn.functional.normalize(torch.randn(6, 16), dim=-1)
    values[5] *= 0.001
    query, keys = torch.ones(1, 1, 1, 1), scores.view(1, 1, 6, 1)
    identity = torch.eye(16)[None]  # W_O of one head that writes its values as they are
    seen = regard.observe(query, keys, values[None, None], scale=1.0, stats=[NormWeighted(identity)])
    weights, written = seen.map.row(0, 0, 0), seen.norm_weighted.columns[0, 0]
    written = written / written.sum()
    figure = heatmap(
        torch.stack([weights, written]),
        ["weight α", "written α‖v‖"],
        WORDS,
        title="One row, by weight and by what it writes",
        row_title="",
        limit=1.0,
    )
    figure.savefig(folder / "not_an_explanation.png")
    return weights[5].item(), written[5].item()


def cut_every_head(layers: Sequence[int]) -> list[tuple[float, float, str]]:
    """The heaviest edge of the last token in every head: its weight, the KL of cutting it, its name."""
    model, tokenizer = bundled()
    recording = record((model, tokenizer), TEXT)
    found = []
    for layer in layers:
        top = recording.maps[layer][0, :, -1].max(-1)
        for head, (weight, key) in enumerate(zip(top.values.tolist(), top.indices.tolist(), strict=True)):
            cut = regard.knockout(model, TEXT, edges=[Edge(layer, head, -1, key)], tokenizer=tokenizer)
            where = repr(recording.tokens[key].text) if key else "the start"
            found.append((weight, cut.kl, f"{layer}.{head} → {where}"))
    return sorted(found, reverse=True)


def main(out: Path | None = None, layers: Sequence[int] = range(9)) -> dict[str, float]:
    """Print and draw both halves."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    weight, written = made_by_hand(folder)
    print(f"made by hand: the full stop has {weight:.2f} of the weight and writes {written:.2f}")

    edges = cut_every_head(layers)
    print("bundled model, the heaviest edges of the last token and what cutting each does:")
    for weight_of_edge, kl, name in edges[:8]:
        print(f"  {weight_of_edge:.3f}   {name:20}   KL {kl:.4f} nats")
    heavy = [kl for weight_of_edge, kl, _ in edges if weight_of_edge > 0.9]
    print(f"  of {len(heavy)} edges above 0.9: {sum(kl < 0.001 for kl in heavy)} below 0.001 nats", end="")
    print(f", {sum(kl > 0.1 for kl in heavy)} above 0.1; the largest {max(heavy):.2f}")

    dots = ([weight_of_edge for weight_of_edge, _, _ in edges], [max(kl, 1e-6) for _, kl, _ in edges])
    figure = curves(
        {"one head's heaviest edge": dots},
        x_title="weight of the edge",
        y_title="KL if it is cut (nats)",
        title=f"{len(edges)} edges of the last token, cut one at a time",
    )
    figure.axes[0].lines[0].set(linestyle="", marker="o", markersize=4, alpha=0.7)
    figure.axes[0].get_legend().remove()
    figure.axes[0].set_yscale("log")
    figure.savefig(folder / "not_an_explanation_cuts.png")
    print(f"figures: {folder}")
    return {"weight": weight, "written": written, "least": min(heavy), "most": max(heavy)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
