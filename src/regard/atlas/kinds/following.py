"""The head whose queries go through the keys in order: word by word through a sound, or a source text."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.atlas.kinds.finding import QUERIES, Kind, lifted, unfit
from regard.atlas.tally import Tally
from regard.atlas.warping import smooth, warped
from regard.cards import Finding

__all__ = ["ALIGNMENT", "CELLS", "NEAR", "stretches"]

# Frames of a sound on either side that count as the same place; a token of a text has its own place only.
NEAR = 2
# How often the rows are shuffled to see what their best way is worth in any order.
SHUFFLES = 4
# Cells of a head that are aligned, and those that are aligned at once.
CELLS, AT_ONCE = 1 << 20, 1 << 24


def _alignment(tally: Tally, kind: Kind) -> list[Finding]:
    """Mean weight of a query on its own stretch of the keys, on the best way that goes through both in order.

    The way is chosen for each head, so that any map has one: the same rows in random orders have theirs too,
    and the head must do better than they.
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
    """The mean weight on the best way of each head, and what an even spread has there."""
    first, last = stretches(weights, near)
    sums = torch.nn.functional.pad(weights.double().cumsum(-1), (1, 0))
    on = sums.gather(-1, last[..., None] + 1) - sums.gather(-1, first[..., None])
    return on[..., 0].mean(-1), ((last - first + 1) / visible).double().mean(-1)


def stretches(
    weights: Float[Tensor, "heads q k"], near: int
) -> tuple[Int64[Tensor, "heads q"], Int64[Tensor, "heads q"]]:
    """The first and the last key of each query's own stretch, on the best way through each head."""
    heads, q, k = weights.shape
    # Single frames of a sound flicker; a token of a text may be all there is to look at.
    even = smooth(weights, 7 if near else 1)
    step = max(1, AT_ONCE // (q * k))
    starts = torch.cat([warped(part) for part in even.split(step)])
    ends = torch.cat([starts[:, 1:], starts.new_full((heads, 1), k - 1)], 1)
    if not near:
        # Of a text a token ends before the next begins, unless both are of one place.
        ends = torch.maximum(starts, torch.cat([ends[:, :-1] - 1, ends[:, -1:]], 1))
    return (starts - near).clamp(min=0), (ends + near).clamp(max=k - 1)


ALIGNMENT = Kind("alignment", _alignment)
