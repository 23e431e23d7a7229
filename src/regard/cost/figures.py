"""The numbers of an estimate by context, as plain data for `report`."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.count import Scores, Work
from regard.cost.gpus import Gpu
from regard.cost.layers import LayerCost
from regard.cost.parameters import Parameters
from regard.cost.roofline import Time
from regard.cost.shape import ModelShape

__all__ = ["AtContext", "Figures"]


@dataclass(frozen=True)
class AtContext:
    """The cost of one context. `decode` is None for a model that doesn't decode, times are None without a
    GPU, `scores` is None for a model without attention.
    """

    context: int
    prefill: Work
    decode: Work | None
    scores: Scores | None
    cache: dict[str, int]
    memory: int
    layers: tuple[LayerCost, ...]
    prefill_time: Time | None = None
    decode_time: Time | None = None


@dataclass(frozen=True)
class Figures:
    """The fields of an `Estimate`; `longest` is the longest context within the budget, None for no limit."""

    shape: ModelShape
    parameters: Parameters
    weights: int
    dtype: str
    cache_dtype: str
    batch: int
    at: tuple[AtContext, ...]
    gpu: Gpu | None
    budget: int | None
    longest: int | None
    notes: tuple[str, ...]
