"""Queries, keys and values as real models make them, and as they go wrong, for benchmarks and tests.

Random normal inputs are easy: no key stands out, and scores stay near zero. In models few keys hold most of
the weight, neighbouring rows share them, and scores spread over tens of nats. Each family has one such trait.

    q, k, v = inputs("sink 10", (1, 8, 4096, 64), torch.bfloat16)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

__all__ = ["FAMILIES", "inputs"]

Pair = tuple[Tensor, Tensor]


def inputs(
    name: str,
    shape: tuple[int, int, int, int],
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    device: str = "cpu",
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of a family, (batch, heads, n, dim); made in float64 and rounded once."""
    generator = torch.Generator(device).manual_seed(seed)
    q, k, v = torch.randn(3, *shape, generator=generator, dtype=torch.float64, device=device).unbind()
    q, k = FAMILIES[name](q, k, generator)
    if name == "near-duplicate keys":
        # One unit in the last place of the dtype, which only the rounded numbers have.
        k = _jittered(k.to(dtype), generator)
    if name == "induction":
        v = _repeated(v)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _random(q: Tensor, k: Tensor, generator: torch.Generator) -> Pair:
    return q, k


def _rotary(q: Tensor, k: Tensor, generator: torch.Generator) -> Pair:
    """Queries and keys share a vector before they are turned, so scores fall with the distance."""
    shared = _one_per_head(q, generator)
    return _turned(q + shared), _turned(k + shared)


def _sharp(q: Tensor, k: Tensor, generator: torch.Generator) -> Pair:
    """Locality, sharper, with a first key that is longer than all others."""
    q, k = _rotary(q, k, generator)
    k = k.clone()
    k[..., 0, :] *= 3
    return 1.5 * q, k


def _sink(q: Tensor, k: Tensor, generator: torch.Generator, *, score: float, places: slice) -> Pair:
    """All queries have a part along one direction, and so have the keys at these places."""
    along = _one_per_head(q, generator)
    along = along / along.norm(dim=-1, keepdim=True) * q.shape[-1] ** 0.25 * math.sqrt(score)
    k = k.clone()
    k[..., places, :] = along.expand_as(k)[..., places, :]
    return q + along, k


def _leap(q: Tensor, k: Tensor, generator: torch.Generator, *, where: float) -> Pair:
    """One key whose score is 180 bits above the rest."""
    at = round(where * (k.shape[-2] - 1))
    return _sink(q, k, generator, score=180 * math.log(2), places=slice(at, at + 1))


def _induction(q: Tensor, k: Tensor, generator: torch.Generator) -> Pair:
    return _repeated(q), _repeated(k)


def _equal(q: Tensor, k: Tensor, generator: torch.Generator) -> Pair:
    return q, k[..., :1, :].expand_as(k)


def _outliers(q: Tensor, k: Tensor, generator: torch.Generator) -> Pair:
    """0.2 % of all entries are forty times as large."""

    def grown(x: Tensor) -> Tensor:
        rare = torch.rand(x.shape, generator=generator, device=x.device) < 0.002
        return torch.where(rare, 40 * x, x)

    return grown(q), grown(k)


def _large(q: Tensor, k: Tensor, generator: torch.Generator) -> Pair:
    """Every third key has a score of about 1,500, as in models with large biases."""
    return _sink(q, k, generator, score=1500.0, places=slice(None, None, 3))


def _one_per_head(q: Tensor, generator: torch.Generator) -> Tensor:
    shape = (1, q.shape[1], 1, q.shape[-1])
    return torch.randn(shape, generator=generator, dtype=q.dtype, device=q.device)


def _turned(x: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary positions: pairs of the two halves are turned by an angle that grows with the position."""
    n, half = x.shape[-2], x.shape[-1] // 2
    speed = base ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angle = torch.arange(n, dtype=x.dtype, device=x.device)[:, None] * speed
    a, b = x[..., :half], x[..., half : 2 * half]
    turned = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
    return torch.cat([*turned, x[..., 2 * half :]], -1)


def _repeated(x: Tensor) -> Tensor:
    """The second half of the sequence repeats the first."""
    half = -(-x.shape[-2] // 2)
    return torch.cat([x[..., :half, :], x[..., : x.shape[-2] - half, :]], -2)


def _jittered(x: Tensor, generator: torch.Generator) -> Tensor:
    """Every entry moved to the number above, below, or not at all."""
    step = torch.randint(-1, 2, x.shape, generator=generator, device=x.device)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    # Neighbouring floats of one sign have neighbouring bits.
    return (x.contiguous().view(bits) + step.to(bits)).view(x.dtype)


FAMILIES: dict[str, Callable[[Tensor, Tensor, torch.Generator], Pair]] = {
    "random": _random,
    "rotary locality": _rotary,
    "local and sharp": _sharp,
    **{f"sink {m}": partial(_sink, score=float(m), places=slice(0, 1)) for m in (5, 10, 20, 40)},
    "stripes": partial(_sink, score=8.0, places=slice(0, None, 17)),
    "induction": _induction,
    "equal keys": _equal,
    "near-duplicate keys": _equal,
    "outliers": _outliers,
    "large logits": _large,
    "leap, first key": partial(_leap, where=0.0),
    "leap, middle key": partial(_leap, where=0.5),
    "leap, last key": partial(_leap, where=1.0),
}
