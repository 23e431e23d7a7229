"""Claims about order and positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Curves
from regard.claims.words import number, percent
from regard.masks import Causal, Mask
from regard.nn import MultiHeadAttention
from regard.scores import Rotary
from regard.scores.positions import Position

__all__ = ["CLAIMS"]


def _change(position: Position | None, mask: Mask | None, n: int, layers: int = 2) -> float:
    """The change of the last output of a random stack if the tokens before it are permuted."""
    stack = [MultiHeadAttention(64, 4, rotary=position).double() for _ in range(layers)]
    x = torch.randn(1, n, 64, dtype=torch.float64)
    order = torch.cat([torch.randperm(n - 1), torch.tensor([n - 1])])
    outs = []
    for given in (x, x[:, order]):
        for layer in stack:
            given = given + layer(given, mask=mask)
        outs.append(given[0, -1] - x[0, -1])
    return ((outs[0] - outs[1]).norm() / outs[0].norm()).item()


@torch.no_grad()
def measure_order(position: Position | None = None, n: int = 65) -> Measurement:
    """Two random layers whose earlier tokens are shuffled: no positions, rotary ones, a causal mask."""
    found = {
        "no_positions": _change(position, None, n),
        "rotary": _change(Rotary(16), None, n),
        "causal_mask_one_layer": _change(position, Causal(), n, layers=1),
        "causal_mask_two_layers": _change(position, Causal(), n),
    }
    labels = ["no positions", "rotary", "causal, 1 layer", "causal, 2 layers"]
    return Measurement(found, Bars(labels, {"change": list(found.values())}, "relative change of the output"))


def judge_order(m: Measurement) -> Verdict:
    if m["no_positions"] > 1e-9:
        return Verdict.folklore(
            f"the output changes by {percent(m['no_positions'])} when the tokens change places"
        )
    found = (
        f"with the tokens in another order the output changes by {number(m['no_positions'])} of its size "
        f"(with rotary positions by {percent(m['rotary'])})"
    )
    if m["causal_mask_two_layers"] > 1e-9:
        return Verdict.conditional(
            f"{found}; but a causal mask tells order too: two layers of it, without any positions, change "
            f"by {percent(m['causal_mask_two_layers'])} (one layer by {number(m['causal_mask_one_layer'])})"
        )
    return Verdict.holds(found)


Turn = Callable[[Tensor, Tensor], Tensor]


def turned(x: Tensor, at: Tensor) -> Tensor:
    """Rotary positions as regard computes them: angles in float32 or better."""
    return Rotary(x.shape[-1]).rotate(x, at)


def turned_in_place(x: Tensor, at: Tensor) -> Tensor:
    """Rotary positions with everything in the dtype of x, positions and angles too."""
    half = x.shape[-1] // 2
    frequencies = Rotary(x.shape[-1]).frequencies()[0].to(x.dtype)
    angles = at.to(x.dtype)[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def _shifted(turn: Turn, dtype: torch.dtype, shift: int, pairs: int) -> float:
    """The change of scores if query and key are shifted equally, in standard deviations of a score."""
    q, k = torch.randn(2, 1, 1, pairs, 64, dtype=torch.float64).to(dtype)
    at = torch.randint(0, 200, (2, pairs))
    scores = [
        (turn(q, at[0] + more).double() * turn(k, at[1] + more).double()).sum(-1) for more in (0, shift)
    ]
    return ((scores[1] - scores[0]).square().mean().sqrt() / scores[0].std()).item()


def measure_relative(
    turn: Turn = turned, pairs: int = 400, shifts: Sequence[int] = (1, 10, 100, 1000, 10_000, 100_000)
) -> Measurement:
    """Scores of random pairs before and after both are shifted, in three precisions."""
    ways: dict[str, tuple[Turn, torch.dtype]] = {
        "float64": (turn, torch.float64),
        "float32": (turn, torch.float32),
        "bfloat16, angles in float32": (turn, torch.bfloat16),
        "bfloat16 throughout": (turned_in_place, torch.bfloat16),
    }
    lines = {
        name: (list(shifts), [_shifted(way, dtype, shift, pairs) for shift in shifts])
        for name, (way, dtype) in ways.items()
    }
    picture = {name: (x, [max(value, 1e-17) for value in y]) for name, (x, y) in lines.items()}
    return Measurement(
        {"shift": shifts[-1], "error": {name: errors[-1] for name, (_, errors) in lines.items()}},
        Curves(picture, "both shifted by", "error of a score (in its σ)", log="xy"),
    )


def judge_relative(m: Measurement) -> Verdict:
    error = m["error"]
    if error["float64"] > 1e-6:
        return Verdict.folklore(
            f"shifted by {m['shift']:,} together, scores move by {number(error['float64'])} of their spread"
        )
    found = (
        f"shifted by {m['shift']:,} together, scores move by {number(error['float64'])} of their spread in "
        f"float64 and {number(error['float32'])} in float32"
    )
    worst, mended = error["bfloat16 throughout"], error["bfloat16, angles in float32"]
    if worst > 0.1:
        remedy = "angles need float32" if mended < 0.1 else "bfloat16 is too coarse"
        return Verdict.conditional(
            f"{found}; but {remedy}: with bfloat16 throughout scores move by {number(worst)} of their "
            f"spread, with float32 angles by {number(mended)}"
        )
    return Verdict.holds(found)


CLAIMS = (
    Claim(
        "order-blind",
        "Without positions attention does not know the order of its tokens.",
        "All tokens but the last change places under two random layers: plain, rotary, causal.",
        measure_order,
        judge_order,
    ),
    Claim(
        "rope-relative",
        "With rotary positions a score depends only on the distance between query and key.",
        "Both shifted alike, by up to 100,000; in float64, float32 and bfloat16.",
        measure_relative,
        judge_relative,
    ),
)
