"""Claims about the divisor √d_k."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import torch
from torch import Tensor, nn

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.training import right, train
from regard.claims.words import listed, number, percent
from regard.cost.prints import verdict as print_verdict
from regard.engine import attention

__all__ = ["CLAIMS"]

DIMS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
# A row counts as saturated once one key has nine tenths of its weight.
SATURATED = 0.9
Divisor = Callable[[int], float]


def _spreads(d: int, pairs: int, shared: float = 0.0) -> tuple[float, float]:
    """The standard deviation of q · k over random pairs with unit variance.

    First with independent components, then with components of which any two correlate by `shared`.
    """
    q, k = torch.randn(2, pairs, d)
    plain = float((q * k).sum(-1).std())
    q, k = (x * math.sqrt(1 - shared) + torch.randn(pairs, 1) * math.sqrt(shared) for x in (q, k))
    return plain, float((q * k).sum(-1).std())


def _tolerance(d: int, pairs: int) -> float:
    """Five standard errors of a standard deviation; q · k has the kurtosis 3 + 6/d."""
    return 5 * math.sqrt((2 + 6 / d) / (4 * pairs))


def measure_std(
    divisor: Divisor = math.sqrt, pairs: int = 20_000, dims: Sequence[int] = DIMS, shared: float = 0.1
) -> Measurement:
    """The spread of q · k by d, plain and divided; and where components are not independent."""
    spreads = [_spreads(d, pairs, shared) for d in dims]
    plain = [spread for spread, _ in spreads]
    scaled = [spread / divisor(d) for spread, d in zip(plain, dims, strict=True)]
    linked = [spread / divisor(d) for (_, spread), d in zip(spreads, dims, strict=True)]
    off = [abs(s - 1) / _tolerance(d, pairs) for s, d in zip(scaled, dims, strict=True)]
    lines = {
        "q · k": (dims, plain),
        "divided": (dims, scaled),
        f"divided, components correlated by {shared}": (dims, linked),
    }
    return Measurement(
        {
            "dims": list(dims),
            "plain": plain,
            "divided": scaled,
            "divided_correlated": linked,
            "correlation": shared,
            "worst_error_in_tolerances": max(off),
            "correlated_error_in_tolerances": abs(linked[-1] - 1) / _tolerance(dims[-1], pairs),
        },
        Curves(lines, "d_k", "standard deviation", log="xy"),
    )


def judge_std(m: Measurement) -> Verdict:
    span = f"from d = {m['dims'][0]} to {m['dims'][-1]}"
    low, high = min(m["divided"]), max(m["divided"])
    if m["worst_error_in_tolerances"] > 1:
        return Verdict.folklore(f"{span} the divided dot products spread by {number(low)} to {number(high)}")
    found = (
        f"{span} the plain spread grows from {number(m['plain'][0])} to {number(m['plain'][-1])}, "
        f"and divided by √d it stays within {number(low, 4)} and {number(high, 4)}"
    )
    if m["correlated_error_in_tolerances"] > 1:
        return Verdict.conditional(
            f"{found}; but components must be independent: unit variance and a correlation of "
            f"{m['correlation']} give {number(m['divided_correlated'][-1])} at d = {m['dims'][-1]}"
        )
    return Verdict.holds(found)


PRINTED = {128: "11.31", 64: "8"}


def measure_64(printed: Mapping[int, str] = PRINTED, pairs: int = 20_000) -> Measurement:
    """√d with all digits, what is printed for it, and what random pairs have."""
    exact = {str(d): math.sqrt(d) for d in printed}
    spread = {str(d): _spreads(d, pairs)[0] for d in printed}
    return Measurement(
        {
            "printed": {str(d): text for d, text in printed.items()},
            "exact": exact,
            "measured": spread,
            "stands": {
                str(d): print_verdict(text, Decimal(repr(exact[str(d)]))) for d, text in printed.items()
            },
            "errors_in_tolerances": {
                str(d): abs(spread[str(d)] / exact[str(d)] - 1) / _tolerance(d, pairs) for d in printed
            },
        }
    )


def judge_64(m: Measurement) -> Verdict:
    wrong = [d for d, stands in m["stands"].items() if stands == "wrong"]
    if wrong:
        said = listed(f"{m['printed'][d]} for d = {d}, and {m['exact'][d]:.4g} is right" for d in wrong)
        return Verdict.misprint(f"printed is {said}")
    said = listed(f"{m['measured'][d]:.2f} at d = {d} (√{d} = {m['exact'][d]:.4g})" for d in m["exact"])
    if max(m["errors_in_tolerances"].values()) > 1:
        return Verdict.folklore(f"random pairs spread by {said}")
    return Verdict.holds(f"random pairs spread by {said}")


def _row(scores: Tensor) -> tuple[float, float, float, float]:
    """Medians over rows: the largest weight, the entropy, the size of softmax's Jacobian; and the mean "
    "of that."""
    weights = scores.softmax(-1)
    entropy = torch.special.entr(weights).sum(-1)
    # ‖diag(a) − a aᵀ‖² = Σ a² − 2 Σ a³ + (Σ a²)²
    square = weights.square().sum(-1)
    jacobian = (square - 2 * weights.pow(3).sum(-1) + square.square()).clamp(min=0).sqrt()
    medians = (weights.amax(-1).median(), entropy.median(), jacobian.median())
    return (*(found.item() for found in medians), jacobian.mean().item())  # pyright: ignore[reportReturnType]


def measure_saturates(
    without: Divisor = lambda d: 1.0, rows: int = 200, keys: int = 64, dims: Sequence[int] = DIMS
) -> Measurement:
    """Rows of random queries and keys, with the divisor and without."""
    scores = [(torch.randn(rows, keys, d) @ torch.randn(rows, d, 1))[..., 0].double() for d in dims]
    scaled = [_row(row / math.sqrt(d)) for row, d in zip(scores, dims, strict=True)]
    bare = [_row(row / without(d)) for row, d in zip(scores, dims, strict=True)]
    lines = {
        "largest weight, no divisor": (dims, [row[0] for row in bare]),
        "largest weight, with it": (dims, [row[0] for row in scaled]),
        "gradient, no divisor": (dims, [max(row[2], 1e-6) for row in bare]),
        "gradient, with it": (dims, [row[2] for row in scaled]),
    }
    saturated = [d for d, row in zip(dims, bare, strict=True) if row[0] > SATURATED]
    names = ("largest_weight", "entropy", "gradient", "mean_gradient")
    return Measurement(
        {
            "keys": keys,
            "dims": list(dims),
            "saturated_from": min(saturated, default=None),
            **{f"{name}_without": [row[i] for row in bare] for i, name in enumerate(names)},
            **{f"{name}_with": [row[i] for row in scaled] for i, name in enumerate(names)},
        },
        Curves(lines, "d_k", "median over rows of 64 keys" if keys == 64 else "median", log="xy"),
    )


def judge_saturates(m: Measurement) -> Verdict:
    last, weight = m["dims"][-1], m["largest_weight_without"]
    shrinks = [b / max(a, 1e-30) for a, b in zip(m["gradient_without"], m["gradient_with"], strict=True)]
    by_d = listed(
        f"{number(max(factor, 1.0))} at d = {d}"
        for d, factor in zip(m["dims"], shrinks, strict=True)
        if d in (64, 512, last)
    )
    ratio = m["gradient_without"][-1] / m["gradient_with"][-1]
    if m["saturated_from"] is None or ratio > 0.1:
        return Verdict.folklore(
            f"at d = {last} the largest of {m['keys']} weights is {number(weight[-1])} without the divisor, "
            f"and the gradient {number(ratio)} times that with it"
        )
    found = (
        f"at d = {last} the median row of {m['keys']} keys gives one key {percent(weight[-1])} of its weight "
        f"({percent(m['largest_weight_with'][-1])} with the divisor), and the median gradient of "
        f"softmax shrinks by a factor of {by_d} (its mean, which the few undecided rows make, by "
        f"{number(m['mean_gradient_with'][-1] / max(m['mean_gradient_without'][-1], 1e-30))} there)"
    )
    if weight[0] > SATURATED:
        return Verdict.holds(found)
    return Verdict.conditional(
        f"{found}; but d must be large: rows saturate from d = {m['saturated_from']}, and at "
        f"d = {m['dims'][0]} the largest weight is {percent(weight[0])}"
    )


class _Lookup(nn.Module):
    """One attention layer that finds a key among pairs of a key and a value, and names the value."""

    def __init__(self, names: int, dim: int, divisor: float) -> None:
        super().__init__()
        self.names, self.scale = names, 1 / divisor
        self.keys, self.values = nn.Embedding(names, dim), nn.Embedding(names, dim)
        self.w_q, self.w_k = (nn.Parameter(torch.randn(dim, dim) / math.sqrt(dim)) for _ in range(2))
        self.out = nn.Linear(dim, names)

    def forward(self, given: Tensor) -> Tensor:
        keys, values, asked = given[:, :, 0], given[:, :, 1], given[:, :1, 2]
        q, k = self.keys(asked) @ self.w_q, self.keys(keys) @ self.w_k
        return self.out(attention(q, k, self.values(values), scale=self.scale))


def _lookups(names: int, pairs: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    def batch(size: int) -> tuple[Tensor, Tensor]:
        keys = torch.rand(size, names).argsort(-1)[:, :pairs]
        values = torch.randint(names, (size, pairs))
        at = torch.randint(pairs, (size, 1))
        asked = keys.gather(1, at).expand(-1, pairs)
        return torch.stack([keys, values, asked], -1), values.gather(1, at)

    return batch


def measure_training(
    without: Divisor = lambda d: 1.0,
    dims: Sequence[int] = (16, 64, 192),
    steps: int = 250,
    rate: float = 2e-3,
    seeds: int = 2,
) -> Measurement:
    """The same tiny model with and without the divisor, from the same seeds, on the same batches."""
    names, pairs = 16, 8
    batch = _lookups(names, pairs)
    curves: dict[str, list[float]] = {}
    correct: dict[str, dict[str, float]] = {"with": {}, "without": {}}
    for d in dims:
        for name, divisor in (("with", math.sqrt(d)), ("without", without(d))):
            shares = []
            for seed in range(seeds):
                torch.manual_seed(seed)
                model = _Lookup(names, d, divisor)
                curves[f"{name} the divisor, d = {d}"] = train(model, batch, steps, rate=rate)
                shares.append(right(model, batch))
            correct[name][str(d)] = sum(shares) / seeds
    width = max(1, steps // 20)
    smooth = {
        name: [sum(values[i : i + width]) / len(values[i : i + width]) for i in range(0, steps, width)]
        for name, values in curves.items()
    }
    return Measurement(
        {
            "steps": steps,
            "seeds": seeds,
            "chance": 1 / names,
            "right_with": correct["with"],
            "right_without": correct["without"],
            "final_loss": {name: values[-1] for name, values in smooth.items()},
        },
        Curves({name: (range(0, steps, width), values) for name, values in smooth.items()}, "step", "loss"),
    )


def judge_training(m: Measurement) -> Verdict:
    chance = m["chance"]
    learnt = {
        d: (share - chance) / max(m["right_with"][d] - chance, 1e-9)
        for d, share in m["right_without"].items()
    }
    said = listed(
        f"{percent(share)} at d = {d} ({percent(m['right_with'][d])} with it)"
        for d, share in m["right_without"].items()
    )
    found = (
        f"after {m['steps']} steps the model without the divisor is right in {said}, the mean of "
        f"{m['seeds']} seeds; chance is {percent(chance)}"
    )
    # Attention that learns nothing still finds one pair in eight by chance.
    untrained = [d for d, share in learnt.items() if share < 0.2]
    if len(untrained) == len(learnt):
        return Verdict.holds(found)
    if untrained:
        return Verdict.conditional(f"at d = {listed(untrained)} only: {found}")
    shares = list(learnt.values())
    slower = min(shares) < 0.95
    how = "it does train, and more slowly the larger d is" if slower else "it does train"
    return Verdict.folklore(f"{how}: {found}")


CLAIMS = (
    Claim(
        "scale-std",
        "The dot product of two vectors with unit variance has standard deviation √d_k; divided by √d_k it "
        "stays near 1, from d = 4 to d = 4096.",
        "20,000 random pairs for each d, with independent components and with correlated ones.",
        measure_std,
        judge_std,
    ),
    Claim(
        "scale-64",
        "At d_k = 128 that standard deviation is 11.31, and at d_k = 64 it is 8.",
        "The square roots digit by digit, and 20,000 random pairs for each.",
        measure_64,
        judge_64,
    ),
    Claim(
        "scale-saturates",
        "Without the divisor softmax saturates and its gradient vanishes.",
        "Largest weight, entropy and norm of softmax's Jacobian in rows of 64 random keys, for each d.",
        measure_saturates,
        judge_saturates,
    ),
    Claim(
        "scale-training",
        "A block without the divisor does not train.",
        "Tiny models that look up a key, with the divisor and without: same seeds, same batches.",
        measure_training,
        judge_training,
    ),
)
