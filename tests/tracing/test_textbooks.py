"""What textbooks print, against what `trace` computes."""

from __future__ import annotations

import pytest
import torch

from regard.tracing import example, trace

# What textbooks print, as they print it: the digits say how exact a number claims to be.

CAT = {
    "q": "0.49 0.13 | 0.41 0.16 | 0.04 0.38 | 0.19 0.60",
    "k": "0.21 0.17 | 0.39 0.65 | -0.06 0.58 | -0.07 0.27",
    "v": "0.61 0.67 | -0.16 0.64 | 0.04 0.14 | 0.98 0.28",
    "scores": "0.125 0.276 0.046 0.001 | 0.113 0.264 0.068 0.014 | 0.073 0.263 0.218 0.100 "
    "| 0.142 0.464 0.337 0.149",
    "scaled": "0.088 0.195 0.033 0.001 | 0.080 0.187 0.048 0.010 | 0.052 0.186 0.154 0.071 "
    "| 0.100 0.328 0.238 0.105",
    "weights": "1.0 0 0 0 | 0.473 0.527 0 0 | 0.308 0.352 0.341 0 | 0.227 0.285 0.260 0.228",
    "output": "0.610 0.670 | 0.205 0.654 | 0.145 0.479 | 0.327 0.435",
}
THREE = {
    "scores": "1 0 1",
    "scaled": "0.707 0 0.707",
    "weights": "0.401 0.198 0.401",
    "output": "6.015 3.985",
}

# A row of scores, what is printed for its softmax, and for each wrong cell what it should have been.
SOFTMAX_ROWS = [
    ([2.1, 0.5, -1.0, 0.8], "0.65 0.13 0.03 0.19", {0: "0.66", 3: "0.18"}),
    ([18, 2, -2, 1], "1.0 1.1e-7 1.5e-9 4.2e-8", {2: "2.1e-9", 3: "4.1e-8"}),
    ([2.3, 0.26, -0.20, 0.10], "0.76 0.10 0.06 0.08", {}),
    ([3.5, -2.1, 8.7, 0.3], "0.05 0.00 0.94 0.01", {0: "0.01", 2: "0.99", 3: "0.00"}),
    ([100, 50, 40], "1.0 0.0 0.0", {}),
    ([5.0, 2.5, 2.0], "0.85 0.10 0.06", {0: "0.88", 1: "0.07", 2: "0.04"}),
]


def half_unit(printed: str) -> float:
    """Half of one in the last digit of a printed number; a bare 0 or 1 is exact."""
    mantissa, _, exponent = printed.partition("e")
    _, point, decimals = mantissa.partition(".")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(decimals)) if point else 0.0


def wrong_cells(value: torch.Tensor, printed: str) -> list[int]:
    """Which printed numbers of a row, or of rows one after another, are not the computed ones rounded."""
    numbers = printed.replace("|", " ").split()
    pairs = zip(value.flatten().tolist(), numbers, strict=True)
    return [i for i, (x, text) in enumerate(pairs) if abs(x - float(text)) > half_unit(text) + 1e-12]


def softmax_step(scores: list[float], **options):
    """A trace whose raw scores are the given ones: one query of 1, and the scores as keys."""
    return trace([[1.0]], [[s] for s in scores], [[0.0]] * len(scores), scale=1.0, **options)


@pytest.mark.parametrize("step", CAT)
def test_every_printed_number_of_the_cat_sat_down_comes_out(step):
    assert wrong_cells(example("cat")[step].value, CAT[step]) == []


@pytest.mark.parametrize("step", ["scores", "scaled", "weights"])
def test_every_printed_step_before_the_output_of_one_query_and_three_keys_comes_out(step):
    assert wrong_cells(example("three")[step].value, THREE[step]) == []


def test_the_printed_output_of_three_keys_was_computed_from_rounded_weights():
    steps = example("three")
    assert wrong_cells(steps.output, THREE["output"]) == [0, 1]
    assert wrong_cells(steps.output, "6.017 3.983") == []
    rounded = torch.tensor([[0.401, 0.198, 0.401]], dtype=torch.float64)
    assert wrong_cells(rounded @ steps.v, THREE["output"]) == []


@pytest.mark.parametrize(("scores", "printed", "right"), SOFTMAX_ROWS, ids=lambda x: str(x)[:20])
def test_a_printed_softmax_is_right_except_in_the_cells_named_here(scores, printed, right):
    weights = softmax_step(scores).weights
    assert wrong_cells(weights, printed) == list(right)
    corrected = [right.get(i, text) for i, text in enumerate(printed.split())]
    assert wrong_cells(weights, " ".join(corrected)) == []


def test_three_of_four_scores_divided_by_eight_are_misprinted():
    k = torch.zeros(4, 64, dtype=torch.float64)
    k[:, 0] = torch.tensor([18, 2, -2, 1])
    steps = trace(torch.eye(1, 64), k, torch.ones(4, 1))
    assert steps["scaled"].formula == "scaled = scores / √64"
    assert wrong_cells(steps.scaled, "2.3 0.26 -0.20 0.10") == [1, 2, 3]
    assert wrong_cells(steps.scaled, "2.3 0.25 -0.25 0.125") == []


def test_no_weight_shown_for_sat_on_the_mat_is_the_softmax_of_its_scores():
    tokens = ["The", "cat", "sat", "on", "the", "mat"]
    scores = [0.5, 2.8, 1.2, 0.3, 0.4, 2.5]
    row = softmax_step(scores, tokens=["sat"], key_tokens=tokens).weights[0]
    weight = dict(zip(tokens, row, strict=True))
    both = weight["The"] + weight["the"]
    shown = torch.stack([weight["cat"], weight["mat"], weight["sat"], both, weight["on"]])
    assert wrong_cells(shown, "0.35 0.28 0.12 0.12 0.13") == [0, 1, 2, 3, 4]
    assert wrong_cells(shown, "0.45 0.33 0.09 0.09 0.04") == []


def test_the_printed_similarities_of_request_come_out():
    others = {"agent": [0.2, 0.8, 0.3], "opened": [0.3, 0.7, 0.4], "pull": [0.1, 0.9, 0.2]}
    steps = trace([[0.8, 0.2, 0.7]], list(others.values()), [[0]] * 3, key_tokens=others)
    assert wrong_cells(steps.scores, "0.53 0.66 0.40") == []
