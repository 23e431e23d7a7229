"""A needle in a long text: does the model find a sentence again, and which heads look at it?

    python examples/needle.py [--out DIR]

A sentence is hidden at several depths of the bundled book and asked for at the end. The first figure is
the log-probability of the right answer by depth, with the same text without the needle as control: that is
what guessing is worth. The second shows who found it: the weight that each of the 54 heads gives to the
needle while the answer is written. A handful do all the work, in the layers that see the whole text.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from regard.atlas import needle
from regard.models import bundled
from regard.plots import curves, heatmap

LENGTH, DEPTHS = 4096, 6


def main(out: Path | None = None, length: int = LENGTH, depths: int = DEPTHS) -> dict[str, float]:
    """Hide, ask, print and draw."""
    folder = out or Path(tempfile.mkdtemp())
    model, tokenizer = bundled()
    test = needle(model, tokenizer, depths=depths, length=length)
    best = test.heads(4)
    print(f"{test.needle!r} in {test.tokens} tokens")
    print("depth   log p(answer)   " + "  ".join(f"{layer}.{head:<2}" for layer, head, _ in best))
    for number, place in enumerate(test.places):
        found = "  ".join(f"{test.retrieval[number, layer, head]:.2f}" for layer, head, _ in best)
        print(f"{place:5.0%}   {test.log_probability[number]:13.1f}   {found}")
    print(f"without the needle: {test.control:.1f}")
    print(f"a head that looks everywhere alike would give it {test.chance:.3f}")

    percent = [100 * place for place in test.places]
    lines = {
        "with the needle": (percent, test.log_probability),
        "without it": (percent, [test.control] * len(percent)),
    }
    figure = curves(
        lines,
        x_title="depth of the needle (%)",
        y_title="log p(answer)",
        title=f"A sentence in {test.tokens} tokens",
    )
    figure.savefig(folder / "needle.png")
    mean = test.retrieval.mean(0)
    figure = heatmap(
        mean,
        [f"layer {layer}" for layer in test.layers],
        [str(head) for head in range(mean.shape[1])],
        title="Weight on the needle while the answer is written",
        row_title="",
        column_title="head",
    )
    figure.savefig(folder / "needle_heads.png", dpi=110)
    print(f"figures: {folder}")
    return {
        "worst": min(test.log_probability),
        "control": test.control,
        "best head": best[0][2],
        "chance": test.chance,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
