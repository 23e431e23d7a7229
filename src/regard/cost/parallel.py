"""The planner: the cost of a long prefill on several ranks, by strategy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from regard.cost.count import cache_bytes, weight_bytes
from regard.cost.dtypes import bytes_of
from regard.cost.gpus import Gpu
from regard.cost.layers import layers_of
from regard.cost.parameters import parameters
from regard.cost.shape import Layer, ModelShape
from regard.cost.traffic import LAYOUTS, Traffic, traffic
from regard.errors import RegardError

__all__ = ["EXCHANGES", "Link", "RankPlan", "link_of", "plan_ranks", "sweep_ranks"]

EXCHANGES = ("gather", "ring", "heads")
# GPUs per node, connected by NVLink; nodes are connected by a network.
NODE = 8


@dataclass(frozen=True)
class Link:
    """The link between ranks: bytes per second that one rank can send, and the latency in seconds."""

    name: str
    bandwidth: float
    latency: float = 10e-6


# NVIDIA H100 and H200 datasheets: NVLink 900 GB/s, both directions together. InfiniBand NDR: 400 Gb/s.
NVLINK = Link("NVLink, 450 GB/s", 450e9)
NETWORK = Link("InfiniBand, 50 GB/s", 50e9)


@dataclass(frozen=True)
class RankPlan:
    """One strategy, an exchange and a layout, with the work of the busiest rank in one prefill.

    `compute` is the time of its matrix products at the GPU's peak; `attention` is the part that needs keys
    and values of other ranks. `sending` is the time of the bytes at the link's peak. A ring sends while it
    attends, so the longer of the two counts; with gathering and with exchange of heads, attention waits for
    the data. `refusal` says why a strategy can't be used; its numbers are then 0.
    """

    exchange: str
    layout: str
    ranks: int
    context: int
    flops: int = 0
    bytes_sent: int = 0
    memory: int = 0
    compute: float = 0.0
    attention: float = 0.0
    sending: float = 0.0
    balance: float = 1.0
    refusal: str | None = None

    @property
    def strategy(self) -> str:
        """Its name on the command line."""
        return f"{self.exchange}/{self.layout}"

    @property
    def seconds(self) -> float:
        """The lower bound for one prefill."""
        if self.exchange == "ring":
            return self.compute - self.attention + max(self.attention, self.sending)
        return self.compute + self.sending

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return asdict(self) | {"strategy": self.strategy, "seconds": self.seconds}


def link_of(ranks: int, gigabytes: float | None = None) -> Link:
    """NVLink within a node of 8, InfiniBand beyond; or a link of the given GB/s.

    >>> link_of(8).name, link_of(16).name, link_of(2, 12.5).bandwidth
    ('NVLink, 450 GB/s', 'InfiniBand, 50 GB/s', 12500000000.0)
    """
    if gigabytes is None:
        return NVLINK if ranks <= NODE else NETWORK
    if gigabytes <= 0:
        raise RegardError(f"the link has {gigabytes} GB/s; wanted more than 0.")
    return Link(f"{gigabytes:g} GB/s", gigabytes * 1e9)


def plan_ranks(
    shape: ModelShape,
    context: int,
    ranks: int,
    processor: Gpu,
    *,
    link: Link | None = None,
    dtype: str = "bfloat16",
    strategy: str | None = None,
) -> list[RankPlan]:
    """Every strategy, or those that `strategy` names ("ring", "head-tail", "ring/head-tail"), fastest first.

    Weights are whole on every rank. docs/scale.md has the formulas.

    >>> from regard.cost import gpu, preset
    >>> plans = plan_ranks(preset("llama-3.1-8b"), 2**20, 8, gpu("H200"))
    >>> plans[0].strategy, plans[0].bytes_sent
    ('ring/head-tail', 120259084288)
    """
    joined = link or link_of(ranks)
    chosen = [(e, lay) for e in EXCHANGES for lay in LAYOUTS if _named(strategy, e, lay)]
    if not chosen:
        known = ", ".join(f"{e}/{lay}" for e in EXCHANGES for lay in LAYOUTS)
        raise RegardError(f"there is no strategy {strategy!r}; strategies are: {known}.")
    plans = [_plan(shape, context, ranks, processor, joined, dtype, e, lay) for e, lay in chosen]
    return sorted(plans, key=lambda plan: (plan.refusal is not None, plan.seconds))


def sweep_ranks(
    shape: ModelShape, context: int, processor: Gpu, *, most: int = 4096, gigabytes: float | None = None
) -> dict[str, list[RankPlan]]:
    """Every strategy at 1, 2, 4 … ranks, until it is refused."""
    found: dict[str, list[RankPlan]] = {}
    ranks = 1
    while ranks <= min(most, context):
        for plan in plan_ranks(shape, context, ranks, processor, link=link_of(ranks, gigabytes)):
            if plan.refusal is None:
                found.setdefault(plan.strategy, []).append(plan)
        ranks *= 2
    return found


def _named(strategy: str | None, exchange: str, layout: str) -> bool:
    return strategy in (None, exchange, layout, f"{exchange}/{layout}")


@lru_cache(64)
def _traffic(context: int, ranks: int, layout: str, reach: Any, causal: bool) -> Traffic:
    return traffic(context, ranks, layout, reach, causal)


def _plan(
    shape: ModelShape,
    context: int,
    ranks: int,
    processor: Gpu,
    link: Link,
    dtype: str,
    exchange: str,
    layout: str,
) -> RankPlan:
    refusal = _refusal(shape, ranks, exchange)
    if refusal is not None:
        return RankPlan(exchange, layout, ranks, context, refusal=refusal)
    flops = attention = sent = held = messages = 0
    busiest = pairs_all = 0
    for layer, cost in zip(shape.layers, layers_of(shape, context, dtype=dtype), strict=True):
        seen = _traffic(context, ranks, layout, layer.reach, layer.causal)
        rows, pairs = int(seen.rows.max()), int(seen.pairs.max())
        if exchange == "heads":
            # Each rank computes some of the heads over the whole sequence.
            share = -(-layer.attention.kv_heads // ranks) / layer.attention.kv_heads
            pairs = int(int(seen.pairs.sum()) * share)
        own = cost.pair_flops * pairs // max(1, int(seen.pairs.sum()))
        dense = (cost.projection_flops + cost.feed_forward_flops) * rows // context
        attention, flops = attention + own, flops + own + dense
        busiest, pairs_all = busiest + pairs, pairs_all + int(seen.pairs.sum())
        sent += _sent(layer, seen, ranks, exchange, dtype)
        held = max(held, _held(layer, seen, ranks, exchange, dtype, context))
        messages += (2 if exchange == "heads" else 1) * (ranks - 1)
    rows = -(-context // ranks)
    flops += 2 * parameters(shape).head  # logits of the last token
    stored = weight_bytes(shape, dtype) + cache_bytes(shape, context, dtype=dtype) // ranks
    return RankPlan(
        exchange,
        layout,
        ranks,
        context,
        flops=flops,
        bytes_sent=sent,
        memory=stored + held + bytes_of(2 * rows * shape.d_model, dtype),
        compute=flops / processor.flops,
        attention=attention / processor.flops,
        sending=sent / link.bandwidth + messages * link.latency,
        balance=busiest * ranks / max(1, pairs_all),
    )


def _refusal(shape: ModelShape, ranks: int, exchange: str) -> str | None:
    for layer in shape.layers:
        attention = layer.attention
        if layer.cross or layer.encoder or not attention.attends:
            return f"a layer with {layer.attends} is not cut along the sequence"
        if attention.cached != 2 * attention.kv_heads * attention.head_dim:
            return "latent attention is not planned over ranks"
        if exchange == "heads" and attention.kv_heads < ranks:
            return f"{attention.kv_heads} key heads, and each of {ranks} ranks needs one"
    return None


def _sent(layer: Layer, seen: Traffic, ranks: int, exchange: str, dtype: str) -> int:
    """The most bytes that a rank sends in one layer, forward."""
    a = layer.attention
    if exchange != "heads":
        return bytes_of(int(seen.sent.max()) * 2 * a.kv_heads * a.head_dim, dtype)
    group, length = a.heads // a.kv_heads, int(seen.rows.sum())
    shares = [-(-a.kv_heads * (r + 1) // ranks) - -(-a.kv_heads * r // ranks) for r in range(ranks)]
    most = 0
    for mine, rows in zip(shares, seen.rows.tolist(), strict=True):
        others = a.kv_heads - mine
        given = rows * others * (group + 2)
        back = group * (length - rows) * mine
        most = max(most, (given + back) * a.head_dim)
    return bytes_of(most, dtype)


def _held(layer: Layer, seen: Traffic, ranks: int, exchange: str, dtype: str, context: int) -> int:
    """The bytes of received keys and values in one layer: all shards, two shards of a ring, or whole
    heads."""
    a = layer.attention
    each = 2 * a.kv_heads * a.head_dim
    if exchange == "gather":
        return bytes_of(int(seen.received.max()) * each, dtype)
    if exchange == "ring":
        return bytes_of(min(2 * int(seen.rows.max()), int(seen.received.max())) * each, dtype)
    mine = -(-a.kv_heads // ranks)
    return (
        bytes_of(context * mine * a.head_dim * (2 * (a.heads // a.kv_heads) + 2), dtype) if ranks > 1 else 0
    )
