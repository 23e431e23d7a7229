"""Dynamic time warping: the path through a map from corner to corner that collects most weight."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.errors import MapError

__all__ = ["smooth", "warped"]


def warped(weights: Float[Tensor, "*heads rows columns"]) -> Int64[Tensor, "*heads rows"]:
    """The column at which each row begins on the path from corner to corner that collects most weight.

    Each step of the path goes one row down, one column on, or both, and every cell on the path counts.

    >>> warped(torch.tensor([[9.0, 2, -1, -1], [-1, -1, 9, -1], [-1, -1, -1, 9]]))
    tensor([0, 2, 3])
    """
    if weights.ndim > 2:
        found = _ways(weights.flatten(0, -3))
        return found.view(*weights.shape[:-1])
    return _ways(weights[None])[0]


def _ways(weights: Float[Tensor, "heads rows columns"]) -> Int64[Tensor, "heads rows"]:
    heads, rows, columns = weights.shape
    best = torch.full((heads, rows + 1, columns + 1), -torch.inf, dtype=torch.float64)
    best[:, 0, 0] = 0.0
    step = torch.zeros(heads, rows + 1, columns + 1, dtype=torch.int8)
    gain = weights.double()
    # Cells of one anti-diagonal depend only on the two before it.
    for diagonal in range(2, rows + columns + 1):
        i = torch.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, on = best[:, i - 1, j - 1], best[:, i - 1, j], best[:, i, j - 1]
        # On ties, stay in the row.
        kind = torch.where((both > down) & (both > on), 0, torch.where((down > both) & (down > on), 1, 2))
        came = torch.stack([both, down, on]).gather(0, kind[None])[0]
        best[:, i, j], step[:, i, j] = gain[:, i - 1, j - 1] + came, kind.to(torch.int8)
    starts = torch.zeros(heads, rows, dtype=torch.int64)
    head = torch.arange(heads)
    i, j = torch.full((heads,), rows), torch.full((heads,), columns)
    for _ in range(rows + columns):
        going = (i > 0) & (j > 0)
        starts[head[going], i[going] - 1] = j[going] - 1
        kind = step[head, i, j]
        i, j = i - (going & (kind != 2)).long(), j - (going & (kind != 1)).long()
    return starts


def smooth(weights: Float[Tensor, "heads q frames"], width: int) -> Float[Tensor, "heads q frames"]:
    """Standardised over the tokens, then the median of each frame's neighbourhood."""
    if width < 1 or width % 2 == 0:
        raise MapError(f"width is {width}; wanted an odd number of frames.")
    even = (weights - weights.mean(-2, keepdim=True)) / weights.std(-2, keepdim=True, unbiased=False)
    even = even.nan_to_num(0.0)
    side = width // 2
    if weights.shape[-1] <= side:
        return even
    padded = torch.nn.functional.pad(even, (side, side), mode="reflect")
    return padded.unfold(-1, width, 1).median(-1).values
