"""The claim that printed examples are right, digit by digit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.words import listed
from regard.tracing import example, trace

__all__ = ["CLAIMS", "PRINTED", "Cell", "computed"]

# What textbooks print, as they print it: the digits say how exact a number claims to be. The first name is
# the example's, the second the step's.
PRINTED: dict[str, str] = {
    "the cat sat down: q": "0.49 0.13 0.41 0.16 0.04 0.38 0.19 0.60",
    "the cat sat down: k": "0.21 0.17 0.39 0.65 -0.06 0.58 -0.07 0.27",
    "the cat sat down: v": "0.61 0.67 -0.16 0.64 0.04 0.14 0.98 0.28",
    "the cat sat down: scores": "0.125 0.276 0.046 0.001 0.113 0.264 0.068 0.014 "
    "0.073 0.263 0.218 0.100 0.142 0.464 0.337 0.149",
    "the cat sat down: scaled": "0.088 0.195 0.033 0.001 0.080 0.187 0.048 0.010 "
    "0.052 0.186 0.154 0.071 0.100 0.328 0.238 0.105",
    "the cat sat down: weights": "1.0 0 0 0 0.473 0.527 0 0 0.308 0.352 0.341 0 0.227 0.285 0.260 0.228",
    "the cat sat down: output": "0.610 0.670 0.205 0.654 0.145 0.479 0.327 0.435",
    "three keys: scores": "1 0 1",
    "three keys: scaled": "0.707 0 0.707",
    "three keys: weights": "0.401 0.198 0.401",
    "three keys: output": "6.015 3.985",
    "softmax(2.1, 0.5, −1, 0.8)": "0.65 0.13 0.03 0.19",
    "softmax(18, 2, −2, 1)": "1.0 1.1e-7 1.5e-9 4.2e-8",
    "softmax(2.3, 0.26, −0.2, 0.1)": "0.76 0.10 0.06 0.08",
    "softmax(3.5, −2.1, 8.7, 0.3)": "0.05 0.00 0.94 0.01",
    "softmax(100, 50, 40)": "1.0 0.0 0.0",
    "softmax(5, 2.5, 2)": "0.85 0.10 0.06",
    "(18, 2, −2, 1) / √64": "2.3 0.26 -0.20 0.10",
    "'sat' on the mat: cat, mat, sat, the, on": "0.35 0.28 0.12 0.12 0.13",
    "'request' · agent, opened, pull": "0.53 0.66 0.40",
}
ROWS = {
    "softmax(2.1, 0.5, −1, 0.8)": [2.1, 0.5, -1.0, 0.8],
    "softmax(18, 2, −2, 1)": [18.0, 2.0, -2.0, 1.0],
    "softmax(2.3, 0.26, −0.2, 0.1)": [2.3, 0.26, -0.2, 0.1],
    "softmax(3.5, −2.1, 8.7, 0.3)": [3.5, -2.1, 8.7, 0.3],
    "softmax(100, 50, 40)": [100.0, 50.0, 40.0],
    "softmax(5, 2.5, 2)": [5.0, 2.5, 2.0],
}


@dataclass(frozen=True)
class Cell:
    """A printed number and the computed one.

    >>> Cell("0.65", 0.6583).wrong, Cell("0.65", 0.6583).right
    (True, '0.66')
    """

    printed: str
    computed: float

    @property
    def _half(self) -> float:
        """Half of one in the last printed digit; a number without a point is exact."""
        mantissa, _, exponent = self.printed.partition("e")
        _, point, decimals = mantissa.partition(".")
        return 0.5 * 10.0 ** (int(exponent or 0) - len(decimals)) if point else 0.0

    @property
    def wrong(self) -> bool:
        return abs(self.computed - float(self.printed)) > self._half + 1e-12

    @property
    def right(self) -> str:
        """What should have been printed, with as many digits."""
        mantissa, e, _ = self.printed.partition("e")
        decimals = len(mantissa.partition(".")[2])
        if not e:
            return f"{self.computed:.{decimals}f}"
        digits, power = f"{self.computed:.{decimals}e}".split("e")
        return f"{digits}e{int(power)}"


def computed() -> dict[str, Tensor]:
    """Every printed number, computed: by `trace`, with all its steps.

    >>> computed()["three keys: weights"]
    tensor([[0.4011, 0.1978, 0.4011]], dtype=torch.float64)
    """
    cat, three = example("cat"), example("three")
    found: dict[str, Tensor] = {}
    for name in PRINTED:
        sentence, _, step = name.partition(": ")
        if sentence == "the cat sat down":
            found[name] = cat[step].value
        elif sentence == "three keys":
            found[name] = three[step].value
    found |= {name: _softmax(row) for name, row in ROWS.items()}
    keys = torch.zeros(4, 64, dtype=torch.float64)
    keys[:, 0] = torch.tensor([18.0, 2.0, -2.0, 1.0])
    found["(18, 2, −2, 1) / √64"] = trace(torch.eye(1, 64), keys, torch.ones(4, 1)).scaled
    the, cat_, sat, on, the_too, mat = _softmax([0.5, 2.8, 1.2, 0.3, 0.4, 2.5])[0]
    found["'sat' on the mat: cat, mat, sat, the, on"] = torch.stack([cat_, mat, sat, the + the_too, on])
    words = [[0.2, 0.8, 0.3], [0.3, 0.7, 0.4], [0.1, 0.9, 0.2]]
    found["'request' · agent, opened, pull"] = trace([[0.8, 0.2, 0.7]], words, [[0]] * 3).scores
    return found


def _softmax(scores: Sequence[float]) -> Tensor:
    return trace([[1.0]], [[s] for s in scores], [[0.0]] * len(scores), scale=1.0).weights


def measure_prints(printed: Mapping[str, str] = PRINTED) -> Measurement:
    """Compare every cell that is printed with the one that is computed."""
    exact = computed()
    cells = {
        name: [Cell(text, x) for text, x in zip(texts.split(), exact[name].flatten().tolist(), strict=True)]
        for name, texts in printed.items()
    }
    wrong = {name: [cell for cell in row if cell.wrong] for name, row in cells.items()}
    return Measurement(
        {
            "numbers_printed": sum(map(len, cells.values())),
            "numbers_wrong": sum(map(len, wrong.values())),
            "wrong": {
                name: listed(f"{cell.printed} should be {cell.right}" for cell in row)
                for name, row in wrong.items()
                if row
            },
        }
    )


def judge_prints(m: Measurement) -> Verdict:
    if not m["wrong"]:
        return Verdict.holds(f"all {m['numbers_printed']} printed numbers are the computed ones, rounded")
    places = "; ".join(f"{name}: {what}" for name, what in m["wrong"].items())
    return Verdict.misprint(
        f"{m['numbers_wrong']} of {m['numbers_printed']} printed numbers are wrong: {places}"
    )


CLAIMS = (
    Claim(
        "row-prints",
        "The softmax rows, worked examples and scaled logits that textbooks print are right.",
        "Every printed number against the computed one; wrong is more than half of its last digit off.",
        measure_prints,
        judge_prints,
    ),
)
