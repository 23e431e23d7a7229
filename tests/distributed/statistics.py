"""Cases about what is observed; they run in the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist

import regard
from distributed.catalogue import DIM, HEADS, LENGTH, MASKS, OPTIONS, random
from distributed.faults import raised
from distributed.parity import LAYOUTS, inputs
from regard.distributed import Sharding, observe, shard
from regard.stats import (
    KL,
    ColumnMass,
    ColumnMax,
    Custom,
    Decay,
    Entropy,
    HeadDivergence,
    HeadSum,
    Histogram,
    MaxScore,
    MeanDistance,
    NormWeighted,
    Pooled,
    ReceptiveWindow,
    SegmentMass,
    SinkMass,
    SinkRate,
    Statistic,
    TopK,
    ValueWeighted,
    VerticalSlash,
    WindowedMass,
)


@dataclass(frozen=True)
class Total(Statistic):
    """The sum of all weights, by a user's statistic that says how states join."""

    def init(self, frame):
        return {"sum": frame.zeros(frame.batch, frame.heads)}

    def update(self, state, tile):
        tile.of_heads(state["sum"]).add_(tile.weights.sum((-2, -1)))

    merge = Statistic.merge

    def finish(self, state, frame):
        return state["sum"]


@dataclass(frozen=True)
class Mute(Statistic):
    """One that does not say it."""

    init, update, finish = Total.init, Total.update, Total.finish


STATS = {
    "entropy": Entropy,
    "max score": MaxScore,
    "mean distance": MeanDistance,
    "sink mass": lambda: SinkMass(2),
    "segment mass": lambda: SegmentMass.bins(5, LENGTH),
    "value weighted": ValueWeighted,
    "norm weighted": lambda: NormWeighted(random(HEADS, DIM + 2, 6, seed=31)),
    "top k": lambda: TopK(3),
    "column mass": ColumnMass,
    "normalised column mass": lambda: ColumnMass(normalise=True),
    "weighed column mass": lambda: ColumnMass(rows=random(LENGTH, seed=32)),
    "mass of the last queries": lambda: ColumnMass(normalise=True, last=20),
    "column max": lambda: ColumnMax(per_key_head=True),
    "windowed mass": lambda: WindowedMass(20, cumulative=True),
    "head sum": lambda: HeadSum(3),
    "kl": lambda: KL(random(LENGTH, LENGTH, seed=33)[None]),
    "decay": Decay,
    "log decay": lambda: Decay(bins="log", signed=True, skip_keys=3),
    "histogram": Histogram,
    "score histogram": lambda: Histogram(of="score"),
    "pooled": lambda: Pooled(8, "both"),
    "head divergence": HeadDivergence,
    "receptive window": ReceptiveWindow,
    "vertical slash": lambda: VerticalSlash(3),
    "sink rate": SinkRate,
    "custom rows": lambda: Custom(lambda tile: tile.weights.square().sum(-1), "rows"),
    "custom columns": lambda: Custom(lambda tile: tile.weights.amax(-2), "columns", "max"),
    "custom map": lambda: Custom(lambda tile: (tile.weights > 0.1).sum((-2, -1))),
    "own": Total,
}
# Which dimension of each tensor of a result is that of queries or keys.
ROWS = {"entropy", "max score", "mean distance", "sink mass", "segment mass", "value weighted", "top k"} | {
    "custom rows"
}
COLUMNS = {
    "column mass",
    "normalised column mass",
    "weighed column mass",
    "mass of the last queries",
    "column max",
    "windowed mass",
    "custom columns",
}


def tensors(found) -> list[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else [x for part in found for x in tensors(part)]


def axis(stat: str) -> int:
    """The dimension of queries or keys."""
    return 3 if stat == "windowed mass" else 2


def matches(group, stat: str, mask: str, layout: str, exchange: str, options: str = "plain") -> None:
    """A statistic of several ranks is that of one process."""
    held = LAYOUTS[layout](LENGTH, dist.get_world_size(group))
    whole = inputs(LENGTH, torch.float64)
    made, given = MASKS[mask](LENGTH), OPTIONS[options](LENGTH)
    exact = regard.observe(*whole, made, stats=[STATS[stat]().named("it")], backend="torch", **given)
    parts = [shard(x, held, group=group) for x in whole]
    more = {"group": group, "sharding": held, "exchange": exchange}
    seen = observe(*parts, made, stats=[STATS[stat]().named("it")], **more, **given)
    torch.testing.assert_close(seen.lse, shard(exact.lse, held, 2, group=group))
    for index, (got, wanted) in enumerate(zip(tensors(seen.it), tensors(exact.it), strict=True)):
        if stat in ROWS | COLUMNS | {"norm weighted"}:
            wanted = shard(wanted, held, axis(stat), group=group)
        torch.testing.assert_close(got, wanted, msg=lambda text, i=index: f"tensor {i}: {text}")


def together(group) -> None:
    """All statistics at once, which share one pass, of a call with every option."""
    held = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    whole = inputs(LENGTH, torch.float64)
    given = OPTIONS["all"](LENGTH)
    stats = [make().named(name.replace(" ", "_")) for name, make in STATS.items()]
    exact = regard.observe(*whole, MASKS["causal"](LENGTH), stats=stats, backend="torch", **given)
    parts = [shard(x, held, group=group) for x in whole]
    seen = observe(*parts, MASKS["causal"](LENGTH), stats=stats, group=group, sharding=held, **given)
    for name in STATS:
        key = name.replace(" ", "_")
        for got, wanted in zip(tensors(seen.stats[key]), tensors(exact.stats[key]), strict=True):
            if name in ROWS | COLUMNS | {"norm weighted"}:
                wanted = shard(wanted, held, axis(name), group=group)
            torch.testing.assert_close(got, wanted, msg=lambda text, name=name: f"{name}: {text}")


def reads(group, layout: str) -> None:
    """Any tile of the map, on every rank."""
    held = LAYOUTS[layout](LENGTH, dist.get_world_size(group))
    whole = inputs(LENGTH, torch.float64)
    for options in ("all", "alibi"):
        given = OPTIONS[options](LENGTH)
        exact = regard.observe(*whole, MASKS["where"](LENGTH), **given).map
        parts = [shard(x, held, group=group) for x in whole]
        seen = observe(*parts, MASKS["where"](LENGTH), group=group, sharding=held, stats=[], **given).map
        assert seen.shape == exact.shape
        for index in (
            (0, 3, slice(5, 40), slice(20, 60)),
            (slice(None), [3, 0], 30, slice(None)),
            (1, slice(None), [60, 2, 2], slice(50, 3, -7)),
        ):
            torch.testing.assert_close(seen[index], exact[index])
            torch.testing.assert_close(seen.scores(index), exact.scores(index))


def reads_another_tile(group) -> str:
    held = Sharding.contiguous(LENGTH, dist.get_world_size(group))
    parts = [shard(x, held, group=group) for x in inputs(LENGTH, torch.float64)]
    seen = observe(*parts, group=group, sharding=held, timeout=20.0)
    return raised(lambda: seen.map[0, 0, dist.get_rank(group), :])


def has_no_merge(group) -> str:
    held = Sharding.contiguous(LENGTH, dist.get_world_size(group))
    parts = [shard(x, held, group=group) for x in inputs(LENGTH, torch.float64)]
    return raised(lambda: observe(*parts, group=group, sharding=held, stats=[Mute()]))


def asks_for_others(group) -> str:
    held = Sharding.contiguous(LENGTH, dist.get_world_size(group))
    parts = [shard(x, held, group=group) for x in inputs(LENGTH, torch.float64)]
    stats = [Entropy(), Decay()] if dist.get_rank(group) else [Entropy()]
    return raised(lambda: observe(*parts, group=group, sharding=held, stats=stats, timeout=20.0))


def large_scores(group) -> None:
    """Scores of tens of thousands, in float32: weights are read in float64."""
    held = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    q, k, v = inputs(LENGTH, torch.float32)
    whole = [q * 100, k * 100, v]
    exact = regard.observe(*whole, MASKS["causal"](LENGTH), stats=[ColumnMass(), Entropy()])
    parts = [shard(x, held, group=group) for x in whole]
    seen = observe(
        *parts, MASKS["causal"](LENGTH), stats=[ColumnMass(), Entropy()], group=group, sharding=held
    )
    torch.testing.assert_close(seen.column_mass, shard(exact.column_mass, held, 2, group=group))
    torch.testing.assert_close(seen.entropy, shard(exact.entropy, held, 2, group=group))


def learns(group) -> None:
    """Gradients flow through what `observe` returns, log-sum-exp included."""
    held = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    whole = [x.requires_grad_() for x in inputs(LENGTH, torch.float64)]
    exact = regard.observe(*whole, MASKS["causal"](LENGTH), stats=[], sink=OPTIONS["sink"](LENGTH)["sink"])
    (exact.out.sum() + exact.lse.square().sum()).backward()
    parts = [shard(x.detach(), held, group=group).requires_grad_() for x in whole]
    given = {"group": group, "sharding": held, **OPTIONS["sink"](LENGTH)}
    seen = observe(*parts, MASKS["causal"](LENGTH), stats=[], **given)
    (seen.out.sum() + seen.lse.square().sum()).backward()
    for x, full in zip(parts, whole, strict=True):
        assert x.grad is not None
        assert full.grad is not None
        torch.testing.assert_close(x.grad, shard(full.grad, held, group=group))
    with pytest.raises(AttributeError, match="not observed"):
        _ = seen.entropy
