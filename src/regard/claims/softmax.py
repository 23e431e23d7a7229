"""Claims about softmax itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.words import number
from regard.maps import observe

__all__ = ["CLAIMS"]

# What is called equal: rounding in float64, where rows have a hundred cells.
ROUNDING = 1e-9
Normaliser = Callable[[Tensor], Tensor]


def weights_of(scores: Float[Tensor, "rows keys"], sink: float | None = None) -> Float[Tensor, "rows keys"]:
    """The engine's weights for given scores: each row is one query of 1 against keys that are its scores."""
    q = scores.new_ones(len(scores), 1, 1, 1)
    k = scores[:, None, :, None]
    logit = None if sink is None else scores.new_full((1,), sink)
    return observe(q, k, k, scale=1.0, sink=logit, stats=()).map.dense()[:, 0, 0]


def measure_budget(
    normalise: Normaliser = weights_of, sink: float | None = 0.0, rows: int = 64, keys: int = 100
) -> Measurement:
    """Rows of random scores, gentle and violent; then one score raised; then a sink logit beside them."""
    scores = torch.randn(rows, keys, dtype=torch.float64) * torch.logspace(-2, 2, rows)[:, None]
    plain = normalise(scores)
    raised = scores.clone()
    raised[:, 0] += 1.0
    others = normalise(raised)[:, 1:] - plain[:, 1:]
    beside = plain if sink is None else weights_of(scores, sink)
    return Measurement(
        {
            "rows": rows,
            "smallest_weight": plain.min().item(),
            "largest_error_of_a_sum": (plain.double().sum(-1) - 1).abs().max().item(),
            "largest_rise_of_another": max(0.0, others.max().item()),
            "smallest_sum_with_a_sink": beside.double().sum(-1).min().item(),
            "mean_sum_with_a_sink": beside.double().sum(-1).mean().item(),
        }
    )


def judge_budget(m: Measurement) -> Verdict:
    if m["smallest_weight"] < 0:
        return Verdict.folklore(f"a weight is {number(m['smallest_weight'])}")
    if m["largest_error_of_a_sum"] > ROUNDING:
        return Verdict.folklore(f"a row adds up to something {number(m['largest_error_of_a_sum'])} off 1")
    if m["largest_rise_of_another"] > ROUNDING:
        rise = number(m["largest_rise_of_another"])
        return Verdict.folklore(f"when one score rises, the weight of another rises by {rise}")
    found = (
        f"in {m['rows']} rows no weight is negative, every sum is 1 within "
        f"{number(m['largest_error_of_a_sum'])}, and when one score rises no other weight does"
    )
    if m["smallest_sum_with_a_sink"] < 1 - ROUNDING:
        return Verdict.conditional(
            f"{found}; but not where a model has a sink logit, which takes weight and is no key: with one of "
            f"0 the sums are {number(m['mean_sum_with_a_sink'])} on average and go down to "
            f"{number(m['smallest_sum_with_a_sink'])}"
        )
    return Verdict.holds(found)


def _start(scores: Tensor, mean: float) -> Tensor:
    """Some distribution with the given expected score that is not softmax: mostly two keys, a bit of all."""
    low, high = scores.argmin(), scores.argmax()
    some = torch.rand_like(scores)
    some = 0.05 * some / some.sum()
    rest, need = 0.95, mean - float(some @ scores)
    share = (need - rest * scores[low]) / (scores[high] - scores[low])
    start = some.clone()
    start[high] += share
    start[low] += rest - share
    return start


def _most_entropy(scores: Tensor, start: Tensor, steps: int = 200) -> Tensor:
    """Newton's method for the most entropy among distributions with the start's expected score."""
    held = torch.stack([torch.ones_like(scores), scores])
    free = torch.linalg.svd(held).Vh[2:].T  # directions that change neither the sum nor the expected score
    p = start
    for _ in range(steps):
        gradient = free.T @ -(p.log() + 1)
        step = free @ torch.linalg.solve(free.T @ (free / p[:, None]), gradient)
        shrinking = step < 0
        room = (p[shrinking] / -step[shrinking]).min() if shrinking.any() else step.new_tensor(math.inf)
        p = p + step * min(1.0, 0.9 * float(room))
    return p


def measure_maxent(
    normalise: Normaliser = lambda s: s.softmax(-1), rows: int = 12, keys: int = 7
) -> Measurement:
    """Look for a distribution with the same expected score and more entropy, from a start far away."""
    distance, gain, travelled = [], [], []
    for _ in range(rows):
        scores = 2 * torch.randn(keys, dtype=torch.float64)
        claimed = normalise(scores)
        start = _start(scores, float(claimed @ scores))
        best = _most_entropy(scores, start)
        distance.append((best - claimed).abs().max().item())
        gain.append((torch.special.entr(best).sum() - torch.special.entr(claimed).sum()).item())
        travelled.append((best - start).abs().max().item())
    return Measurement(
        {
            "rows": rows,
            "largest_distance": max(distance),
            "largest_gain_of_entropy": max(gain),
            "smallest_way_from_the_start": min(travelled),
        }
    )


def judge_maxent(m: Measurement) -> Verdict:
    if m["largest_distance"] > 1e-6:
        return Verdict.folklore(
            f"another distribution with the same expected score has {number(m['largest_gain_of_entropy'])} "
            f"nats more"
        )
    return Verdict.holds(
        f"in {m['rows']} rows the search for the most entropy ends within {number(m['largest_distance'])} of "
        f"softmax, from starts at least {number(m['smallest_way_from_the_start'])} away"
    )


def measure_temperature(factor: float = 10.0, temperature: float = 0.1, rows: int = 1000) -> Measurement:
    """Entropies of rows as they are, multiplied, and at the temperature; of flat rows too."""

    def entropy(scores: Tensor) -> Tensor:
        return torch.special.entr(scores.softmax(-1)).sum(-1)

    scores = torch.randn(rows, 16, dtype=torch.float64)
    flat = torch.zeros(1, 16, dtype=torch.float64)
    before, after = entropy(scores), entropy(scores * factor)
    factors = [2.0**i for i in range(-4, 6)]
    lines = {
        "random scores": (factors, [entropy(scores * f).mean().item() for f in factors]),
        "equal scores": (factors, [entropy(flat * f).item() for f in factors]),
    }
    return Measurement(
        {
            "factor": factor,
            "temperature": temperature,
            "entropy_before": before.mean().item(),
            "entropy_after": after.mean().item(),
            "share_of_rows_sharper": (after < before).double().mean().item(),
            "difference_from_temperature": (scores * factor - scores / temperature).abs().max().item(),
            "change_where_scores_are_equal": (entropy(flat * factor) - entropy(flat)).abs().item(),
        },
        Curves(lines, "factor on the logits", "mean entropy (nats)", log="x"),
    )


def judge_temperature(m: Measurement) -> Verdict:
    moved = f"entropy goes from {number(m['entropy_before'])} to {number(m['entropy_after'])} nats"
    if m["share_of_rows_sharper"] < 1:
        return Verdict.folklore(
            f"multiplied by {number(m['factor'])}, {moved}: only {m['share_of_rows_sharper']:.0%} of rows "
            f"are sharper"
        )
    if m["difference_from_temperature"] > 1e-9:
        return Verdict.folklore(
            f"a factor of {number(m['factor'])} is not temperature {number(m['temperature'])}: logits "
            f"differ by {number(m['difference_from_temperature'])}"
        )
    found = f"every random row is sharper ({moved}), and both ways give the same logits"
    if m["change_where_scores_are_equal"] == 0:
        return Verdict.conditional(f"{found}; but keys with equal scores keep equal weights")
    return Verdict.holds(found)


CLAIMS = (
    Claim(
        "softmax-budget",
        "Weights are not negative and add up to one, so that more for one key is less for the others.",
        "64 rows of 100 random scores of all sizes: signs, sums, one score raised; again with a sink logit.",
        measure_budget,
        judge_budget,
    ),
    Claim(
        "softmax-maxent",
        "Of all distributions with a given expected score, softmax has the most entropy.",
        "Newton's method maximises entropy under both constraints, from a start far away.",
        measure_maxent,
        judge_maxent,
    ),
    Claim(
        "temperature",
        "Logits multiplied by ten make a sharper distribution, as a temperature of 0.1 does.",
        "Entropies of 1,000 random rows before and after, and of a row of equal scores.",
        measure_temperature,
        judge_temperature,
    ),
)
