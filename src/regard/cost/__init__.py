"""The cost of a model: parameters, FLOPs, bytes, cache, time and the longest context that fits."""

from regard.cost.attention import Attention, LatentAttention
from regard.cost.config import from_config
from regard.cost.count import Scores, Work, cache_bytes, decode, prefill, scores, weight_bytes
from regard.cost.dtypes import BITS
from regard.cost.estimate import Estimate, estimate
from regard.cost.figures import AtContext
from regard.cost.fit import longest_context, memory_bytes
from regard.cost.gpus import GPUS, Gpu, gpu, this_machine
from regard.cost.hybrids import HYBRIDS
from regard.cost.layers import LayerCost, layers_of
from regard.cost.parallel import Link, RankPlan, link_of, plan_ranks, sweep_ranks
from regard.cost.parameters import Parameters, parameters
from regard.cost.presets import PRESETS, preset
from regard.cost.prints import Print, prints
from regard.cost.reach import FULL, Reach
from regard.cost.roofline import Time, roofline
from regard.cost.shape import Extra, FeedForward, Layer, ModelShape
from regard.cost.traffic import Traffic, traffic
from regard.cost.units import context_of, size_of

__all__ = [
    "BITS",
    "FULL",
    "GPUS",
    "HYBRIDS",
    "PRESETS",
    "AtContext",
    "Attention",
    "Estimate",
    "Extra",
    "FeedForward",
    "Gpu",
    "LatentAttention",
    "Layer",
    "LayerCost",
    "Link",
    "ModelShape",
    "Parameters",
    "Print",
    "RankPlan",
    "Reach",
    "Scores",
    "Time",
    "Traffic",
    "Work",
    "cache_bytes",
    "context_of",
    "decode",
    "estimate",
    "from_config",
    "gpu",
    "layers_of",
    "link_of",
    "longest_context",
    "memory_bytes",
    "parameters",
    "plan_ranks",
    "prefill",
    "preset",
    "prints",
    "roofline",
    "scores",
    "size_of",
    "sweep_ranks",
    "this_machine",
    "traffic",
    "weight_bytes",
]
