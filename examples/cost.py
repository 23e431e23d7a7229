"""What a long context costs: the cache of five models, and what fits into 80 GB.

    python examples/cost.py [--out DIR]

Counted, not measured: nothing is run. The cache grows with the context, and how fast depends on what the
layers keep: a key and a value for each head, for each group of heads (grouped-query), for a window or a
chunk only, or one short vector for all (latent). The second figure takes one model apart: the FLOPs of
reading a context, where the matrix products of attention overtake everything else.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from regard.cost import cache_bytes, longest_context, prefill, preset, weight_bytes
from regard.plots import curves

MODELS = {
    "gpt3-175b": "every head keeps its own",
    "llama-3.1-8b": "4 query heads share one",
    "mistral-7b": "a window of 4096",
    "llama-4-maverick": "chunks of 8192, every 4th layer full",
    "deepseek-v3": "one short vector",
}
CONTEXTS = [2**power for power in range(10, 21)]
BUDGET = 80 * 10**9
TICKS = {1024: "1k", 8192: "8k", 65536: "64k", 524288: "512k"}


def words(tokens: int | None) -> str:
    """A longest context as people say it."""
    return "no end" if tokens is None else f"{tokens:,}" if tokens else "weights alone are more"


def main(out: Path | None = None) -> dict[str, float]:
    """Print the table, draw the caches and the FLOPs."""
    folder = out or Path(tempfile.mkdtemp())
    shapes = {name: preset(name) for name in MODELS}
    print(
        f"{'cache in bfloat16':16}  {'what it keeps':36}       at 8k     at 128k   longest context in 80 GB"
    )
    for name, shape in shapes.items():
        small, large = (cache_bytes(shape, n) / 1e9 for n in (8192, 131072))
        fits = longest_context(shape, BUDGET) if weight_bytes(shape) < BUDGET else 0
        print(f"{name:16}   {MODELS[name]:36}   {small:6.2f} GB   {large:6.2f} GB   {words(fits)}")
    lines = {
        name: (CONTEXTS, [cache_bytes(shape, n) / 1e9 for n in CONTEXTS]) for name, shape in shapes.items()
    }
    figure = curves(
        lines,
        x_title="context (tokens)",
        y_title="cache (GB)",
        title="Keys and values in bfloat16",
        logarithmic=True,
    )
    figure.axes[0].set_xticks(list(TICKS), list(TICKS.values()))
    figure.axes[0].tick_params(axis="x", which="minor", length=0)
    figure.savefig(folder / "cost.png")

    work = [prefill(shapes["llama-3.1-8b"], n).flops_by_part for n in CONTEXTS]
    pairs = [flops["scores"] + flops["mix"] for flops in work]
    parts = {
        "scores and mix": pairs,
        "projections": [flops["projections"] for flops in work],
        "feed-forward": [flops["feed_forward"] for flops in work],
    }
    shares = [mine / sum(flops.values()) for mine, flops in zip(pairs, work, strict=True)]
    crossing = next(n for n, share in zip(CONTEXTS, shares, strict=True) if share > 0.5)
    print(f"llama-3.1-8b: scores and mix are more than half of all FLOPs from {crossing:,} tokens on")
    figure = curves(
        {name: (CONTEXTS, flops) for name, flops in parts.items()},
        x_title="context (tokens)",
        y_title="FLOPs to read it",
        title="llama-3.1-8b reads a context",
        logarithmic=True,
    )
    figure.axes[0].set_xticks(list(TICKS), list(TICKS.values()))
    figure.axes[0].tick_params(axis="x", which="minor", length=0)
    figure.savefig(folder / "cost_flops.png")
    print(f"figures: {folder}")
    return {"crossing": crossing, "llama at 128k": cache_bytes(shapes["llama-3.1-8b"], 131072)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
