"""Sinks: where heads rest that have nothing to say.

    python examples/sinks.py [--out DIR]

The bundled model reads the beginning of the bundled story. The first figure has a cell for each of
its heads: the mean weight on the very first token, which holds nothing but the start of the text. The
second asks what is there: the length of the first token's value against the mean of the others. Heads that
rest on it read a short vector, so that resting writes little. And the weight is needed all the same: hide
the token from all queries, and the loss goes up.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

import regard
from regard.models import bundled, record, sample_text
from regard.plots import curves, heatmap
from regard.stats import SinkMass, SinkRate

TOKENS = 512


def main(out: Path | None = None, tokens: int = TOKENS) -> dict[str, float]:
    """Record, print and draw the sinks, and hide the first token."""
    folder = out or Path(tempfile.mkdtemp())
    model, tokenizer = bundled()
    ids = tokenizer(sample_text(), return_tensors="pt")["input_ids"][:, :tokens]
    recording = record((model, tokenizer), ids, stats=[SinkMass(1), SinkRate()])
    # The first query has no choice but to look at itself, so it is left out.
    sinks = recording.stat("sink_mass")[:, 0, :, 1:].mean(-1)
    layers, heads = sinks.shape
    even = (1 / torch.arange(2, tokens + 1)).mean().item()
    print(f"{tokens} tokens; an even spread would give the first token {even:.3f}")
    print("layer   mean weight on it   strongest head   heads above 0.3")
    for layer, row in enumerate(sinks):
        share = recording.layers[layer].sink_rate.item()
        print(f"{layer:5}   {row.mean():17.3f}   {row.max():9.3f} (head {int(row.argmax())})   {share:7.0%}")
    figure = heatmap(
        sinks,
        [f"layer {layer}" for layer in range(layers)],
        [str(head) for head in range(heads)],
        title="Mean weight on the first token",
        row_title="",
        column_title="head",
    )
    figure.savefig(folder / "sinks.png", dpi=110)

    values = [recording.maps[layer].problem.v[0].norm(dim=-1) for layer in range(layers)]
    ratios = torch.stack([norms[:, 0] / norms[:, 1:].mean(-1) for norms in values])
    # Two query heads share one value head.
    ratios = ratios.repeat_interleave(heads // ratios.shape[1], dim=1)
    figure = curves(
        {"one head": (sinks.flatten().tolist(), ratios.flatten().tolist())},
        x_title="mean weight on the first token",
        y_title="its value's length / the mean length",
        title="Heads that rest on a token read little from it",
    )
    figure.axes[0].lines[0].set(linestyle="", marker="o", markersize=4, alpha=0.7)
    figure.axes[0].get_legend().remove()
    figure.savefig(folder / "sinks_values.png")
    resting = ratios[sinks > 0.3]
    print(f"length of its value against the mean of the others: {ratios.median():.2f} (median of all heads)")
    print(f"in the {len(resting)} heads that rest on it most: {resting.median():.2f}")

    cut = regard.knockout(model, ids, keys=[0])
    print(f"hidden from all queries: loss {cut.loss_before:.2f} → {cut.loss_after:.2f} nats a token")
    other = regard.knockout(model, ids, keys=[100])
    print(f"token 100 hidden instead: loss {other.loss_before:.2f} → {other.loss_after:.2f}")
    print(f"figures: {folder}")
    changes = {"first": cut.loss_change, "other": other.loss_change}
    return {"strongest": sinks.max().item(), "even": even, **changes}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
