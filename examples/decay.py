"""Decay: how attention falls off with distance, head by head, and with which exponent.

    python examples/decay.py [--out DIR]

The bundled model reads the bundled story. For each head: the exact mean weight at every distance,
over queries that all have these distances, and two laws held against it, a power d^-γ and an exponential.
On two logarithmic axes a power law is a straight line. Heads differ widely: a single γ for a model hides
a head that looks at its neighbours and one that looks everywhere.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter
from pathlib import Path

from regard.atlas import DecayFit, decay
from regard.models import bundled, record, sample_text
from regard.plots import curves

TOKENS = 1024


def binned(fit: DecayFit, per_octave: int = 4) -> tuple[list[float], list[float]]:
    """Means over steps of equal size on a logarithmic axis: the eye sees no thousand points."""
    weights, x, y, start = fit.weight.tolist(), [], [], 1
    while start <= fit.last:
        stop = max(start + 1, round(start * 2 ** (1 / per_octave)))
        piece = weights[start : min(stop, fit.last + 1)]
        x.append((start + start + len(piece) - 1) / 2)
        y.append(sum(piece) / len(piece))
        start = stop
    return x, y


def main(out: Path | None = None, tokens: int = TOKENS) -> dict[str, float]:
    """Fit every head, print the extremes, draw all curves and the exponents."""
    folder = out or Path(tempfile.mkdtemp())
    model, tokenizer = bundled()
    ids = tokenizer(sample_text(), return_tensors="pt")["input_ids"][:, :tokens]
    fits = sorted(decay(record((model, tokenizer), ids), skip_sinks=4), key=lambda fit: fit.gamma)
    print(f"{len(fits)} heads, distances {fits[0].first} to {fits[0].last}, {fits[0].queries} queries each")
    print("layer.head       γ   95 % interval      R²   which law")
    shown = [*fits[:2], fits[len(fits) // 2], *fits[-2:]]
    for fit in shown:
        low, high = fit.interval
        law = f"{fit.gamma:6.2f}   {low:5.2f} to {high:5.2f}   {fit.r2:5.2f}   {fit.better or 'neither'}"
        print(f"{fit.layer:8}.{fit.head}  {law}")
    better = Counter(fit.better or "neither" for fit in fits)
    median = statistics.median(fit.gamma for fit in fits)
    laws = ", ".join(f"{law} {count}" for law, count in better.most_common())
    print(f"median γ {median:.2f}; better described by: {laws}")

    names = [f"{fit.layer}.{fit.head}: γ = {fit.gamma:.2f}" for fit in fits]
    emphasis = [names[0], names[len(fits) // 2], names[-1]]
    figure = curves(
        {name: binned(fit) for name, fit in zip(names, fits, strict=True)},
        x_title="distance (tokens)",
        y_title="mean weight",
        title="54 heads, without the first four keys",
        logarithmic=True,
        emphasis=emphasis,
    )
    figure.axes[0].set_ylim(bottom=1e-6)
    figure.savefig(folder / "decay.png", dpi=90)
    print(f"figures: {folder}")
    return {"heads": len(fits), "flattest": fits[0].gamma, "median": median, "steepest": fits[-1].gamma}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
