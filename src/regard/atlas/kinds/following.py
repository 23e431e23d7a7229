"""The alignment kind: queries that follow the keys in order, through a sound or a source text."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.atlas.kinds.finding import QUERIES, Kind, lifted, unfit
from regard.atlas.tally import Tally
from regard.atlas.warping import smooth, warped
from regard.cards import Finding

__all__ = ["ALIGNMENT", "CELLS", "NEAR", "stretches"]

# Frames of a sound on either side that count as the same position; in a text, only the token itself counts.
NEAR = 2
# The number of shuffles of the rows that the best path is compared with.
SHUFFLES = 4
# The most cells of a head to align, and the most cells to align at once.
CELLS, AT_ONCE = 1 << 20, 1 << 24


def _alignment(tally: Tally, kind: Kind) -> list[Finding]:
    """Mean weight of a query on its own stretch of the keys, along the best monotonic path.

    Every map has a best path, so the head must have more weight along it than the same rows in random orders.
    """
    if tally.role != "cross":
        return [unfit(kind, "only cross-attention follows another text or a sound")] * tally.heads
    words = tally.words
    frames = tally.k if words.heard is None else words.heard
    queries = tally.q - words.said_from
    if queries < QUERIES:
        return [unfit(kind, f"only {queries} queries could show it, and {QUERIES} are wanted")] * tally.heads
    if queries * frames > CELLS:
        return [unfit(kind, f"{queries} x {frames} cells are too many to align")] * tally.heads
    seen = tally.map[0, :, words.said_from :, :frames].float().cpu()
    visible = tally.flat.visible[:, words.said_from :].cpu().clamp(min=1)
    near = 0 if words.heard is None else NEAR
    weight, chance = _along(seen, visible, near)
    drawn = torch.Generator().manual_seed(0)
    orders = [torch.randperm(queries, generator=drawn) for _ in range(SHUFFLES)]
    shuffled = torch.stack([_along(seen[:, order], visible, near)[0] for order in orders]).mean(0)
    what = "text" if words.heard is None else "sound"
    return lifted(
        kind,
        weight,
        chance,
        queries,
        lambda head: (
            f"{float(weight[head]):.2f} of the weight is on each token's own stretch of the {what}, in "
            f"order; {float(shuffled[head]):.2f} if the tokens are shuffled"
        ),
        sharpness=tally.sharpness.cpu(),
        shuffled=torch.maximum(shuffled, chance),
    )


def _along(
    weights: Float[Tensor, "heads q k"], visible: Int64[Tensor, "#heads q"], near: int
) -> tuple[Float[Tensor, " heads"], Float[Tensor, " heads"]]:
    """The mean weight along the best path of each head, and that of an even spread."""
    first, last = stretches(weights, near)
    sums = torch.nn.functional.pad(weights.double().cumsum(-1), (1, 0))
    on = sums.gather(-1, last[..., None] + 1) - sums.gather(-1, first[..., None])
    return on[..., 0].mean(-1), ((last - first + 1) / visible).double().mean(-1)


def stretches(
    weights: Float[Tensor, "heads q k"], near: int
) -> tuple[Int64[Tensor, "heads q"], Int64[Tensor, "heads q"]]:
    """The first and the last key of each query's own stretch, along the best path of each head."""
    heads, q, k = weights.shape
    # Smooth over frames of a sound, whose weights are noisy, but not over tokens of a text.
    even = smooth(weights, 7 if near else 1)
    step = max(1, AT_ONCE // (q * k))
    starts = torch.cat([warped(part) for part in even.split(step)])
    ends = torch.cat([starts[:, 1:], starts.new_full((heads, 1), k - 1)], 1)
    if not near:
        # In a text, a stretch ends before the next begins, unless both have the same key.
        ends = torch.maximum(starts, torch.cat([ends[:, :-1] - 1, ends[:, -1:]], 1))
    return (starts - near).clamp(min=0), (ends + near).clamp(max=k - 1)


ALIGNMENT = Kind("alignment", _alignment)
