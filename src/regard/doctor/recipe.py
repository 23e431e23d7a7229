"""The attention formula with every known mistake as a setting: what a probe compares with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SCALES", "Recipe", "compute", "pattern", "rotate"]

# By name: a function of the head's width, of d_model and of the number of keys.
SCALES = {
    "d_k": lambda d, model, n: d**-0.5,
    "none": lambda d, model, n: 1.0,
    "twice": lambda d, model, n: 1.0 / d,
    "d_model": lambda d, model, n: model**-0.5,
    "multiplied": lambda d, model, n: d**0.5,
    "length": lambda d, model, n: n**-0.5,
}


@dataclass(frozen=True)
class Recipe:
    """One way to compute attention; the defaults are the healthy one.

    `scale` names one of `SCALES` or is a number, `axis` is that of softmax over (batch, heads, q, k), and
    `restart` gives the tokens after a cache of that length positions from zero.
    """

    scale: str | float = "d_k"
    axis: int = -1
    mask: str = "before"
    split: str = "heads"
    merge: str = "heads"
    groups: str = "interleave"
    rotary: str | None = None
    base: float = 10000.0
    rotary_values: bool = False
    softmax: torch.dtype | None = None
    project: bool = True
    restart: int | None = None


def pattern(name: str, q: int, k: int) -> Tensor:
    """Which keys each query may attend to, by the name of the pattern.

    >>> pattern("causal", 2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    shift = {"causal": k - q, "strict": k - q - 1, "ahead": k - q + 1, "first": 0}
    ones = torch.ones(q, k, dtype=torch.bool)
    return ones if name == "full" else ~ones.tril(k - q) if name == "inverted" else ones.tril(shift[name])


def rotate(x: Tensor, positions: Tensor, recipe: Recipe) -> Tensor:
    """Rotary positions in the layout a recipe names; "mixed" is the mistake of using both at once."""
    half = x.shape[-1] // 2
    turns = recipe.base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = (positions.double()[:, None] * turns).to(x.dtype)
    pairs, halves = angles.repeat_interleave(2, -1), torch.cat([angles, angles], -1)
    layout, of_pairs = {"halves": (halves, False), "interleaved": (pairs, True)}.get(
        recipe.rotary or "", (pairs, False) if recipe.rotary == "mixed" else (halves, True)
    )
    if of_pairs:
        turned = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    else:
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * layout.cos() + turned * layout.sin()


def _split(x: Tensor, heads: int, how: str) -> Tensor:
    batch, n, width = x.shape
    if how == "view":
        return x.reshape(batch, heads, n, width // heads)
    return x.reshape(batch, n, heads, width // heads).transpose(1, 2)


def _weights(scores: Tensor, allowed: Tensor, recipe: Recipe) -> Tensor:
    dtype = scores.dtype
    if recipe.softmax is not None:
        scores = scores.to(recipe.softmax)
    if recipe.mask == "after":
        return scores.softmax(recipe.axis).to(dtype) * allowed
    scores = scores.masked_fill(~allowed, -torch.inf)
    # A row with nothing to attend to means nothing; zeros compare with everything.
    return scores.softmax(recipe.axis).to(dtype).nan_to_num(0.0)


def compute(
    q: Tensor, k: Tensor, v: Tensor, heads: tuple[int, int], allowed: Tensor, recipe: Recipe
) -> Tensor:
    """Attention over `(batch, length, heads × dim)` tensors as a recipe has it.

    >>> x = torch.ones(1, 3, 8)
    >>> compute(x, x, x, (2, 2), pattern("causal", 3, 3), Recipe()).shape
    torch.Size([1, 3, 8])
    """
    n_q, n_k, model = q.shape[1], k.shape[1], q.shape[2]
    q, k, v = (
        _split(q, heads[0], recipe.split),
        _split(k, heads[1], recipe.split),
        _split(v, heads[1], recipe.split),
    )
    if recipe.rotary:
        places = torch.arange(n_k)
        if recipe.restart is not None:
            places = torch.cat([places[: recipe.restart], torch.arange(n_k - recipe.restart)])
        q, k = rotate(q, places[n_k - n_q :], recipe), rotate(k, places, recipe)
        v = rotate(v, places, recipe) if recipe.rotary_values else v
    if heads[0] != heads[1]:
        times = heads[0] // heads[1]
        tiled = recipe.groups == "tile"
        k, v = ((x.repeat(1, times, 1, 1) if tiled else x.repeat_interleave(times, 1)) for x in (k, v))
    scale = recipe.scale
    factor = SCALES[scale](q.shape[-1], model, n_k) if isinstance(scale, str) else scale
    out = _weights(q @ k.mT * factor, allowed, recipe) @ v
    out = out if recipe.merge == "view" else out.transpose(1, 2)
    return out.reshape(out.shape[0], n_q, -1)
