"""The attention formula with every known mistake as a setting, for probes to compare with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["SCALES", "Recipe", "compute", "pattern", "rotate", "scores_of"]

# Scales by name: functions of the head width, d_model and the number of keys.
SCALES = {
    "d_k": lambda d, model, n: d**-0.5,
    "none": lambda d, model, n: 1.0,
    "twice": lambda d, model, n: 1.0 / d,
    "d_model": lambda d, model, n: model**-0.5,
    "multiplied": lambda d, model, n: d**0.5,
    "length": lambda d, model, n: n**-0.5,
}
# Values for forbidden scores by mistake; with None the value is added instead of filled in.
FILLS = {"before": -torch.inf, "zero": 0.0, "one": 1.0, "minus one": -1.0}
# Functions used by mistake instead of softmax.
PLAIN = {
    "none": lambda s: s,
    "exp": torch.exp,
    "shares": lambda s: s / s.sum(-1, keepdim=True),
}


@dataclass(frozen=True)
class Recipe:
    """One way to compute attention; the defaults are the healthy one.

    `scale` names one of `SCALES` or is a number; `axis` is the softmax axis over (batch, heads, q, k);
    `order` says which projections are used as q, k and v; `mixed`, which of them (o: the output) a wrong view
    mixes across tokens; `turned`, which of them get rotary positions; `cap` bounds the scores by tanh; with
    `restart`, tokens after a cache of that length get positions from zero.
    """

    scale: str | float = "d_k"
    axis: int | tuple[int, ...] = -1
    mask: str = "before"
    mixed: str = ""
    tiled: str = ""
    order: str = "qkv"
    weights: str = "softmax"
    after: str | None = None
    norm: str | None = None
    normed: str = "qk"
    rotary: str | None = None
    base: float = 10000.0
    part: float = 1.0
    turn: float = 1.0
    turned: str = "qk"
    softmax: torch.dtype | None = None
    cap: float | None = None
    restart: int | None = None


def pattern(name: str, q: int, k: int) -> Tensor:
    """The pairs that may attend, by the name of the pattern.

    >>> pattern("causal", 2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    shift = {"causal": k - q, "strict": k - q - 1, "ahead": k - q + 1, "first": 0}
    ones = torch.ones(q, k, dtype=torch.bool)
    return ones if name == "full" else ~ones.tril(k - q) if name == "inverted" else ones.tril(shift[name])


def rotate(x: Tensor, positions: Tensor, recipe: Recipe) -> Tensor:
    """Apply rotary positions in the recipe's layout; "mixed" is the mistake of using both layouts at once."""
    width = int(x.shape[-1] * recipe.part) // 2 * 2
    if width < 2:
        return x
    x, rest = x[..., :width], x[..., width:]
    half = width // 2
    by_pairs = recipe.rotary in ("interleaved", "mixed")
    cos, sin = _angles(tuple(positions.tolist()), half, recipe.turn, recipe.base, by_pairs, x.dtype)
    if recipe.rotary in ("interleaved", "mixed-pairs"):
        turned = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    else:
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return torch.cat([x * cos + turned * sin, rest], -1)


@cache
def _angles(
    positions: tuple[int, ...], half: int, turn: float, base: float, pairs: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    turns = turn * base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.tensor(positions, dtype=torch.float64)[:, None] * turns
    angles = angles.repeat_interleave(2, -1) if pairs else torch.cat([angles, angles], -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _split(x: Tensor, heads: int, how: bool = False) -> Tensor:
    """Split into heads; `how` selects a wrong view that mixes tokens."""
    batch, n, width = x.shape
    if how:
        return x.reshape(batch, heads, n, width // heads)
    return x.reshape(batch, n, heads, width // heads).transpose(1, 2)


def _normed(x: Tensor, how: str) -> Tensor:
    """A vector per token and head, normalised; the wide forms take all heads together."""
    if how.startswith("wide "):
        b, h, n, d = x.shape
        return _split(_normed(x.transpose(1, 2).reshape(b, n, h * d), how[5:]), h)
    if how == "unit":
        return F.normalize(x, dim=-1)
    return F.layer_norm(x, x.shape[-1:]) if how == "layer" else F.rms_norm(x, x.shape[-1:], eps=1e-6)


def _softmax(scores: Tensor, axis: int | tuple[int, ...]) -> Tensor:
    if isinstance(axis, int):
        return scores.softmax(axis)
    return scores.flatten(-2).softmax(-1).reshape(scores.shape)


def _weights(scores: Tensor, allowed: Tensor, recipe: Recipe) -> Tensor:
    if recipe.weights == "uniform":
        scores = torch.zeros_like(scores)
    if recipe.weights == "own":
        return torch.eye(scores.shape[-2], scores.shape[-1]).to(scores).expand(scores.shape)
    if recipe.weights in PLAIN:
        return PLAIN[recipe.weights](scores * allowed) * allowed
    dtype = scores.dtype
    if recipe.softmax is not None:
        scores = scores.to(recipe.softmax)
    if recipe.mask == "after":
        return _softmax(scores, recipe.axis).to(dtype) * allowed
    if recipe.mask == "added":
        scores = scores + allowed.to(dtype)
    else:
        scores = scores.masked_fill(~allowed, FILLS[recipe.mask])
    if recipe.weights == "log":
        return scores.log_softmax(-1).to(dtype)
    weights = _softmax(scores, recipe.axis).to(dtype)
    # Rows with nothing to attend to are not compared: set them to 0.
    weights = weights.nan_to_num(0.0) if recipe.axis == -1 else weights
    return weights.softmax(-1) if recipe.weights == "twice" else weights


def compute(
    q: Tensor, k: Tensor, v: Tensor, heads: tuple[int, int], allowed: Tensor, recipe: Recipe
) -> Tensor:
    """Attention over `(batch, length, heads × dim)` tensors by a recipe.

    >>> x = torch.ones(1, 3, 8)
    >>> compute(x, x, x, (2, 2), pattern("causal", 3, 3), Recipe()).shape
    torch.Size([1, 3, 8])
    """
    n_q, n_k, model = q.shape[1], k.shape[1], q.shape[2]
    given = (("q", q, heads[0]), ("k", k, heads[1]), ("v", v, heads[1]))
    parts = {name: _split(x, count, name in recipe.mixed) for name, x, count in given}
    parts = {name: parts[source] for name, source in zip("qkv", recipe.order, strict=True)}
    for name in recipe.normed if recipe.norm else "":
        if name in parts:
            parts[name] = _normed(parts[name], recipe.norm or "")
    _turn(parts, n_q, n_k, recipe)
    count = parts["q"].shape[1]
    for name in ("k", "v"):
        times = count // parts[name].shape[1]
        if times > 1:
            x = parts[name]
            tiled = name in recipe.tiled
            parts[name] = x.repeat(1, times, 1, 1) if tiled else x.repeat_interleave(times, 1)
    out = _mix(parts, (model, n_k), allowed, recipe)
    if recipe.norm and "o" in recipe.normed:
        out = _normed(out, recipe.norm)
    if "pixels" in recipe.mixed:
        # Channels first: (heads, length, dim) taken for (channels, length).
        return out.reshape(out.shape[0], -1, n_q).transpose(1, 2)
    out = out if "o" in recipe.mixed else out.transpose(1, 2)
    return out.reshape(out.shape[0], n_q, -1)


def _turn(parts: dict[str, Tensor], n_q: int, n_k: int, recipe: Recipe) -> None:
    """Apply rotary positions to the parts that a recipe names."""
    if not recipe.rotary:
        return
    places = torch.arange(n_k)
    if recipe.restart is not None:
        places = torch.cat([places[: recipe.restart], torch.arange(n_k - recipe.restart)])
    for name in recipe.turned:
        parts[name] = rotate(parts[name], places[n_k - n_q :] if name == "q" else places, recipe)


def scores_of(q: Tensor, k: Tensor, heads: tuple[int, int], recipe: Recipe) -> Tensor:
    """The products q·k of a recipe as `(batch, heads, q, k)`, without scale and mask."""
    parts = {"q": _split(q, heads[0]), "k": _split(k, heads[1])}
    for name in "qk" if recipe.norm else "":
        parts[name] = _normed(parts[name], recipe.norm or "")
    _turn(parts, q.shape[1], k.shape[1], replace(recipe, turned="qk"))
    return parts["q"] @ parts["k"].repeat_interleave(heads[0] // heads[1], 1).mT


def _mix(parts: dict[str, Tensor], sizes: tuple[int, int], allowed: Tensor, recipe: Recipe) -> Tensor:
    q, k, v = parts["q"], parts["k"], parts["v"]
    factor = _factor(recipe.scale, q.shape[-1], sizes)
    if recipe.weights == "channels":
        return v @ (q.mT @ k * factor).softmax(-1).mT
    scores = q @ k.mT * factor
    scores = scores if recipe.cap is None else recipe.cap * (scores / recipe.cap).tanh()
    weights = _weights(scores, allowed, recipe)
    return weights @ v * _factor(recipe.after or 1.0, q.shape[-1], sizes)


def _factor(scale: Any, d: int, sizes: tuple[int, int]) -> float:
    return SCALES[scale](d, *sizes) if isinstance(scale, str) else scale
