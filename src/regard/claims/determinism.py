"""The claim that the same attention gives other bits elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars
from regard.claims.timing import threads
from regard.claims.words import listed, percent
from regard.engine import attention

__all__ = ["CLAIMS"]

Inputs = Callable[[int], tuple[Tensor, Tensor, Tensor]]


def random_inputs(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, keys and values."""
    q, k, v = torch.randn(3, 1, 2, n, 64).unbind()
    return q, k, v


def streamed(q: Tensor, k: Tensor, v: Tensor, tile: int) -> Tensor:
    """Attention over keys in tiles of any size, with an online softmax, as kernels do it."""
    largest = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(largest), torch.zeros_like(q)
    for start in range(0, k.shape[-2], tile):
        keys, values = k[..., start : start + tile, :], v[..., start : start + tile, :]
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        kept, weights = (largest - new).exp(), (scores - new).exp()
        total, out, largest = total * kept + weights.sum(-1, keepdim=True), out * kept + weights @ values, new
    return out / total


def _other(a: Tensor, b: Tensor) -> float:
    """The share of numbers whose bits differ."""
    return (a != b).double().mean().item()


def measure_bits(
    inputs: Inputs = random_inputs,
    n: int = 257,
    tiles: Sequence[int] = (16, 64, 128),
    counts: Sequence[int] = (1, 2),
) -> Measurement:
    """The same attention with other tiles, another dtype and other threads; regard's repeated."""
    q, k, v = inputs(n)
    first = streamed(q, k, v, tiles[0])
    other = {f"tiles of {tile}": _other(first, streamed(q, k, v, tile)) for tile in tiles[1:]}
    other["float64, then rounded"] = _other(
        first, streamed(q.double(), k.double(), v.double(), tiles[0]).float()
    )
    ours = [attention(q, k, v, backend="torch") for _ in range(3)]
    fixed = {"regard, again": max(_other(ours[0], again) for again in ours[1:])}
    runs = []
    for count in counts:
        with threads(count):
            runs.append(attention(q, k, v, backend="torch"))
    fixed[f"regard, {listed(map(str, counts))} threads"] = max(_other(runs[0], run) for run in runs)
    return Measurement(
        {
            "length": n,
            "first": f"tiles of {tiles[0]}",
            "share_of_other_bits": other,
            "share_of_other_bits_in_fixed_order": fixed,
        },
        Bars(
            [*other, *fixed],
            {"other bits": [*other.values(), *fixed.values()]},
            "share with other bits",
        ),
    )


def judge_bits(m: Measurement) -> Verdict:
    other, fixed = m["share_of_other_bits"], m["share_of_other_bits_in_fixed_order"]
    if max(other.values()) == 0:
        return Verdict.folklore(f"{listed(other)} give the same bits at {m['length']} tokens")
    said = listed(f"{percent(share)} ({name})" for name, share in other.items())
    found = f"of the numbers that {m['first']} give, {said} come out with other bits"
    if max(fixed.values()) == 0:
        return Verdict.conditional(
            f"{found}; but with a fixed order of sums none does ({'; '.join(fixed)}: 0, on this machine)"
        )
    return Verdict.holds(f"{found}; {listed(f'{name} {percent(share)}' for name, share in fixed.items())}")


CLAIMS = (
    Claim(
        "deterministic",
        "The same attention gives other bits elsewhere.",
        "Bits across tile sizes and dtypes, and of regard's fixed order across calls and threads.",
        measure_bits,
        judge_bits,
    ),
)
