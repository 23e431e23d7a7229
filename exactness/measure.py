"""Errors against float64, ours and eager's, over families of inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.families import FAMILIES, inputs
from regard import Causal, attention, observe
from regard.stats import (
    KL,
    ColumnMass,
    ColumnMax,
    Decay,
    Entropy,
    Frame,
    HeadDivergence,
    HeadSum,
    MapTile,
    MaxScore,
    MeanDistance,
    NormWeighted,
    Pooled,
    SegmentMass,
    SinkMass,
    Statistic,
    TopK,
    ValueWeighted,
    VerticalSlash,
    WindowedMass,
    by_name,
)

__all__ = [
    "BACKENDS",
    "COUNTS",
    "DTYPES",
    "FACTOR",
    "FLOOR",
    "GRADIENT_FLOOR",
    "PER_SCORE",
    "Cell",
    "Size",
    "largest_score",
    "measure",
    "statistics",
]

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# On the CPU `auto` reads maps with the native kernels; `torch` and `sdpa` are asked for by name.
BACKENDS = {"cpu": {"torch": "torch", "sdpa": "sdpa", "native": "auto"}, "cuda": {"triton": "triton"}}
# Statistics that count what is above a threshold: near it the last bit decides, so an error says nothing.
COUNTS = ("Histogram", "ReceptiveWindow", "SinkRate")
# What is promised: at most so many times eager's own error, plus a floor.
FACTOR = 2.0
# What sums in float32 may lose, and what gradients may: they subtract Σ P dP, taken from a rounded output.
FLOOR, GRADIENT_FLOOR = 1e-5, 5e-5
# Per unit of the largest score. The CPU reads rows of large scores in float64. GPU kernels keep float32, and
# there a score and the log-sum-exp of its row are each rounded by 2^-24 of their size.
PER_SCORE = {"triton": 2.0**-23}
# What no GPU kernel computes: it is read from tiles there.
TILES = (HeadDivergence,)
RIDING = (Entropy, MaxScore, MeanDistance, SinkMass)


@dataclass(frozen=True)
class Size:
    """How large the measured calls are."""

    heads: int = 2
    n: int = 129
    dim: int = 64


@dataclass(frozen=True)
class Cell:
    """The worst case of a quantity, backend and dtype: our error, eager's in the same case, the family.

    `largest` is the largest score of the case, without its sign.
    """

    dtype: str
    quantity: str
    backend: str
    error: float
    eager: float
    family: str
    largest: float

    @property
    def promised(self) -> float:
        """The largest error that is promised."""
        floor = GRADIENT_FLOOR if self.quantity.startswith("gradient") else FLOOR
        return FACTOR * self.eager + floor + PER_SCORE.get(self.backend, 0.0) * self.largest

    @property
    def share(self) -> float:
        """Our error as a share of what is promised."""
        return self.error / self.promised


def statistics(size: Size) -> list[Statistic]:
    """Every statistic whose error means something."""
    generator = torch.Generator().manual_seed(0)
    half = size.n // 2
    projection = torch.randn(size.heads, size.dim, 16, generator=generator)
    taught = torch.randn(1, size.n, size.n, generator=generator)
    segments = SegmentMass({"first": (0, half), "rest": (half, size.n)})
    return [
        Entropy(), MaxScore(), MeanDistance(), SinkMass(4), ColumnMass(), ColumnMax(), Decay(), Pooled(32),
        TopK(8), HeadDivergence(), HeadSum(4), KL(taught), NormWeighted(projection), segments,
        ValueWeighted(), VerticalSlash(4), WindowedMass(32),
    ]  # fmt: skip


def measure(
    device: str, dtypes: Iterable[str] = DTYPES, families: Iterable[str] = FAMILIES, size: Size = Size()
) -> list[Cell]:
    """Of each quantity, backend and dtype the case that comes nearest to breaking the promise, or does."""
    found: dict[tuple[str, str, str], Cell] = {}
    for dtype in dtypes:
        for family in families:
            for cell in _case(device, dtype, family, size):
                key = cell.dtype, cell.quantity, cell.backend
                if key not in found or cell.share > found[key].share:
                    found[key] = cell
    return list(found.values())


def _case(device: str, dtype: str, family: str, size: Size) -> Iterable[Cell]:
    tensors = inputs(family, (1, size.heads, size.n, size.dim), DTYPES[dtype])
    upstream = torch.randn(tensors[2].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    asked, largest = statistics(size), largest_score(*tensors[:2])
    exact = _dense(tensors, upstream, asked, torch.float64)
    eager = _dense(tensors, upstream, asked, DTYPES[dtype])
    for name, backend in BACKENDS[device].items():
        if backend == "triton" and dtype == "float64":
            continue  # the kernels compute in float32, and say so
        for quantity, got in _ours(tensors, upstream, asked, backend, device):
            if got.shape != exact[quantity].shape:
                raise AssertionError(f"{quantity} of {name} has shape {tuple(got.shape)}")
            errors = (_error(x, exact[quantity]) for x in (got, eager[quantity]))
            yield Cell(dtype, quantity, name, *errors, family, largest)


def largest_score(q: Tensor, k: Tensor) -> float:
    """Of all pairs that a causal mask allows, without its sign."""
    return (q.double() @ k.double().mT * q.shape[-1] ** -0.5).tril().abs().max().item()


def _error(got: Tensor, exact: Tensor) -> float:
    """The largest difference, as a share of the largest value if that is above 1; infinite for our NaN."""
    got, largest = got.detach().double().cpu(), exact.nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    if not bool((got.isfinite() == exact.isfinite()).all()):
        return float("inf")
    return (got - exact).nan_to_num(0.0, 0.0, 0.0).abs().max().item() / max(largest, 1.0)


def _ours(
    tensors: tuple[Tensor, ...], upstream: Tensor, asked: list[Statistic], backend: str, device: str
) -> Iterable[tuple[str, Tensor]]:
    """Every quantity as regard computes it."""
    q, k, v = (x.to(device).requires_grad_() for x in tensors)
    out = attention(q, k, v, mask=Causal(), backend=backend)
    yield "output", out
    gradients = torch.autograd.grad(out, (q, k, v), upstream.to(out))
    yield from zip(("gradient of q", "gradient of k", "gradient of v"), gradients, strict=True)
    with torch.no_grad():
        yield "map cells", observe(q, k, v, mask=Causal(), stats=[], backend=backend).map.dense()
        for group in _groups(asked, backend):
            seen = observe(q, k, v, mask=Causal(), stats=group, backend=backend)
            for name in by_name(group):
                yield from _parts(name, getattr(seen, name))


def _groups(asked: list[Statistic], backend: str) -> list[list[Statistic]]:
    """Those that ride in the forward pass, and those that need a second one; what kernels know, for a GPU."""
    known = [one for one in asked if backend != "triton" or not isinstance(one, TILES)]
    riding = [one for one in known if isinstance(one, RIDING)]
    return [riding, [one for one in known if one not in riding]]


def _dense(
    tensors: tuple[Tensor, ...], upstream: Tensor, asked: list[Statistic], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Every quantity by the formula, with the whole matrix, in one dtype: eager code; in float64 the truth.

    Statistics of half-precision weights are summed in float32, as careful eager code does.
    """
    q, k, v = (x.to(dtype).requires_grad_() for x in tensors)
    n = q.shape[-2]
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~allowed, -torch.inf)
    weights = scores.softmax(-1)
    out = weights @ v
    gradients = torch.autograd.grad(out, (q, k, v), upstream.to(dtype))
    found = {"output": out, "map cells": weights}
    found |= dict(zip(("gradient of q", "gradient of k", "gradient of v"), gradients, strict=True))
    wide = dtype if dtype == torch.float64 else torch.float32
    sizes = {"batch": q.shape[0], "heads": q.shape[1], "q": n, "k": n}
    frame = Frame(**sizes, mask=Causal(), values=v.detach().to(wide), dtype=wide)
    whole = [range(size) for size in weights.shape]
    cells, logits = weights.detach().to(wide), scores.detach().to(wide)
    for name, statistic in by_name(asked).items():
        tile = MapTile(frame, *whole, cells, allowed[None, None], scores_of=lambda: logits)
        state = statistic.init(frame)
        statistic.update(state, tile)
        found |= dict(_parts(name, statistic.finish(state, frame)))
    return {name: x.detach().double() for name, x in found.items()}


def _parts(name: str, value: Any) -> Iterable[tuple[str, Tensor]]:
    """A statistic's numbers; where it also names keys, only what they weigh."""
    if isinstance(value, Tensor):
        yield name, value
        return
    for field, part in zip(value._fields, value, strict=True):
        if part.is_floating_point():
            yield f"{name}.{field}", part
