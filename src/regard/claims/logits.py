"""Claims that put numbers on raw scores and on rounding."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Curves
from regard.claims.words import listed, number, percent
from regard.engine import attention

__all__ = ["CLAIMS"]

SATURATED = 0.9


def _scores(rows: int, keys: int, d: int, size: float = 1.0) -> Tensor:
    """Dot products of random queries and keys whose components have standard deviation `size`."""
    q, k = size * torch.randn(rows, 1, d), size * torch.randn(rows, keys, d)
    return (q * k).sum(-1)


def measure_rows(
    d: int = 64, keys: Sequence[int] = (8, 32, 128, 512), rows: int = 1000, divisor: float = 1.0
) -> Measurement:
    """The share of unscaled rows in which one key has nine tenths of the weight, by number of keys."""
    shares = [
        (_scores(rows, n, d).div(divisor).softmax(-1).amax(-1) > SATURATED).double().mean().item()
        for n in keys
    ]
    return Measurement(
        {"d": d, "rows": rows, "keys": list(keys), "share_saturated": shares},
        Curves({f"d = {d}, no divisor": (list(keys), shares)}, "keys", "share of saturated rows", log="x"),
    )


def judge_rows(m: Measurement) -> Verdict:
    shares = m["share_saturated"]
    said = listed(f"{percent(s)} with {n} keys" for n, s in zip(m["keys"], shares, strict=True))
    found = f"at d = {m['d']} one key has more than nine tenths of the weight in {said}"
    if min(shares) > 0.95:
        return Verdict.holds(found)
    if min(shares) > 0.5:
        return Verdict.conditional(f"most rows, not essentially every one: {found}")
    return Verdict.folklore(found)


def measure_sigma(d: int = 64, pairs: int = 200_000, divisor: float = 1.0) -> Measurement:
    """How far unscaled logits spread, in units and in their own standard deviations."""
    scores = _scores(pairs // 100, 100, d).flatten() / divisor
    sigma = scores.std().item()
    return Measurement(
        {
            "d": d,
            "logits": scores.numel(),
            "standard_deviation": sigma,
            "share_within_8": (scores.abs() <= 8).double().mean().item(),
            "share_beyond_8_sigma": (scores.abs() > 8 * sigma).double().mean().item(),
            "largest_in_sigma": (scores.abs().max() / sigma).item(),
        }
    )


def judge_sigma(m: Measurement) -> Verdict:
    found = (
        f"at d = {m['d']} unscaled logits have a standard deviation of {m['standard_deviation']:.2f}, and "
        f"{percent(m['share_within_8'])} of {m['logits']:,} lie within ±8"
    )
    if m["share_beyond_8_sigma"] > 1e-3:
        return Verdict.holds(f"{found}; {percent(m['share_beyond_8_sigma'])} lie beyond eight of them")
    if abs(m["standard_deviation"] - 8) < 0.2:
        return Verdict.misprint(
            f"{found}: ±8 is one standard deviation and not eight, and the largest is "
            f"{m['largest_in_sigma']:.1f} of them"
        )
    return Verdict.folklore(found)


def measure_hundreds(
    d: int = 512, rows: int = 400, keys: int = 64, sizes: Sequence[float] = (1, 1.5, 2)
) -> Measurement:
    """The share of rows in which some dot product is a hundred or more, by the size of the components."""
    shares = {
        str(size): (_scores(rows, keys, d, size).abs().amax(-1) >= 100).double().mean().item()
        for size in sizes
    }
    return Measurement(
        {"d": d, "rows": rows, "keys": keys, "share_of_rows": shares, "standard_deviation": math.sqrt(d)},
        Bars(
            list(shares),
            {"rows": list(shares.values())},
            "share of rows with |q · k| ≥ 100",
            "σ of a component",
        ),
    )


def judge_hundreds(m: Measurement) -> Verdict:
    shares = m["share_of_rows"]
    unit, *larger = shares
    found = (
        f"at d = {m['d']} the standard deviation is {m['standard_deviation']:.1f}, and of rows of "
        f"{m['keys']} "
        f"keys {percent(shares[unit])} have a dot product of a hundred or more"
    )
    if shares[unit] > 0.5:
        return Verdict.holds(found)
    enough = [size for size in larger if shares[size] > 0.5]
    if enough:
        return Verdict.conditional(
            f"with components of unit variance hardly ever: {found}; with a standard deviation of "
            f"{enough[0]} "
            f"each, {percent(shares[enough[0]])} have one"
        )
    return Verdict.folklore(found)


def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention written out, every step in the dtype of its inputs."""
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def measure_drift(
    tiled: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda q, k, v: attention(q, k, v, backend="torch"),
    n: int = 512,
    claimed: float = 1e-6,
) -> Measurement:
    """How far tiles and plain attention are apart, and each from float64, in three precisions."""
    q, k, v = torch.randn(3, 1, 2, n, 64, dtype=torch.float64).unbind()
    exact = eager(q, k, v)
    apart, off = {}, {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        given = [x.to(dtype) for x in (q, k, v)]
        with warnings.catch_warnings():
            # Processors without bfloat16 products say so, once.
            warnings.simplefilter("ignore")
            plain, tiles = eager(*given).double(), tiled(*given).double()
        name = str(dtype).removeprefix("torch.")
        apart[name] = ((plain - tiles).norm() / exact.norm()).item()
        off[name] = ((tiles - exact).norm() / exact.norm()).item()
    return Measurement(
        {"tokens": n, "claimed": claimed, "apart": apart, "tiles_off_float64": off},
        Bars(
            list(apart),
            {"tiles − plain": [math.log10(max(x, 1e-17)) for x in apart.values()]},
            "log₁₀ of the relative difference",
        ),
    )


def judge_drift(m: Measurement) -> Verdict:
    apart = m["apart"]
    said = listed(f"{number(x, 2)} in {name}" for name, x in apart.items())
    found = f"over {m['tokens']} tokens tiled and plain attention are apart by {said} of the output"
    if m["claimed"] / 5 < apart["float16"] < 5 * m["claimed"]:
        return Verdict.holds(found)
    near = min(apart, key=lambda name: abs(math.log(max(apart[name], 1e-17) / m["claimed"])))
    return Verdict.misprint(
        f"{found}; {number(m['claimed'])} is nearest to what {near} has, and float16 has "
        f"{number(max(apart['float16'], 1e-17) / m['claimed'], 2)} times as much"
    )


CLAIMS = (
    Claim(
        "saturates-64",
        "Without the divisor softmax saturates at d = 64 on essentially every row.",
        "1,000 random rows of 8 to 512 keys: how many give one key nine tenths of their weight.",
        measure_rows,
        judge_rows,
    ),
    Claim(
        "logits-8-sigma",
        "At d = 64 unscaled logits reach ±8σ.",
        "200,000 random logits: their standard deviation, and how many lie beyond eight of them.",
        measure_sigma,
        judge_sigma,
    ),
    Claim(
        "dots-512",
        "At d = 512 dot products easily reach the hundreds.",
        "400 rows of 64 random keys, with components of unit variance and with larger ones.",
        measure_hundreds,
        judge_hundreds,
    ),
)
DRIFT = (
    Claim(
        "drift-fp16",
        "In fp16, tiled attention drifts from plain attention by about 1e-6.",
        "Both over the same 512 random tokens in float32, bfloat16 and float16.",
        measure_drift,
        judge_drift,
    ),
)
