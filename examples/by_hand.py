"""One attention map recomputed by hand, and held against `regard.trace`.

    python examples/by_hand.py [--out DIR]

Four tokens, vectors of four numbers, one head of two, a causal mask: small enough for paper. Everything is
done twice: by `regard.trace`, which keeps every step, and with Python's own floats, three loops and
`math.exp`. Then the row of one token is written out, term by term, as one would on paper. The figures are
the scores before softmax and the weights after it.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

from regard.tracing import EXAMPLES, example

Matrix = list[list[float]]


def product(a: Matrix, b: Matrix) -> Matrix:
    """a b, row by column."""
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a]


def softmax(row: list[float]) -> list[float]:
    """Positive numbers that add up to one; a score of −∞ becomes exactly 0."""
    powers = [math.exp(score - max(row)) for score in row]
    return [power / sum(powers) for power in powers]


def by_hand(x: Matrix, w_q: Matrix, w_k: Matrix, w_v: Matrix) -> dict[str, Matrix]:
    """Causal attention of token vectors, with every step under the name that a trace gives it."""
    q, k, v = product(x, w_q), product(x, w_k), product(x, w_v)
    scores = product(q, [list(column) for column in zip(*k, strict=True)])
    root = math.sqrt(len(k[0]))
    scaled = [[score / root for score in row] for row in scores]
    masked = [[s if j <= i else -math.inf for j, s in enumerate(row)] for i, row in enumerate(scaled)]
    weights = [softmax(row) for row in masked]
    steps = {"q": q, "k": k, "v": v, "scores": scores, "scaled": scaled, "masked": masked}
    return {**steps, "weights": weights, "output": product(weights, v)}


def difference(a: Matrix, b: Matrix) -> float:
    """The largest difference of two matrices, where both are finite."""
    pairs = [(x, y) for row, other in zip(a, b, strict=True) for x, y in zip(row, other, strict=True)]
    return max(abs(x - y) for x, y in pairs if math.isfinite(x) or math.isfinite(y))


def main(out: Path | None = None) -> dict[str, float]:
    """Compute both ways, print the differences and one row worked out, draw the map."""
    steps = example("cat")
    given = {name: EXAMPLES["cat"][name] for name in ("x", "w_q", "w_k", "w_v")}
    hand = by_hand(**given)
    found = {name: difference(matrix, steps[name].value.tolist()) for name, matrix in hand.items()}
    print("largest difference between paper and trace:")
    for name, largest in found.items():
        print(f"  {name:8} {'none' if largest < 1e-12 else f'{largest:.1e}'}")
    tokens, row = EXAMPLES["cat"]["tokens"], 2
    print(f"the row of {tokens[row]!r}, written out:")
    for token, score, weight in zip(tokens, hand["masked"][row], hand["weights"][row], strict=True):
        power = math.exp(score) if math.isfinite(score) else 0.0
        print(f"  {token:5} score {score:8.4f}   e^score {power:.4f}   weight {weight:.4f}")
    total = sum(math.exp(score) for score in hand["masked"][row])
    mixed = " + ".join(f"{w:.4f} × {v[0]:.2f}" for w, v in zip(hand["weights"][row], hand["v"], strict=True))
    print(f"  the powers add up to {total:.4f}, and the output begins {mixed} = {hand['output'][row][0]:.4f}")
    folder = out or Path(tempfile.mkdtemp())
    steps.plot("masked").savefig(folder / "by_hand_scores.png")
    steps.plot("weights").savefig(folder / "by_hand.png")
    print(f"figures: {folder}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
