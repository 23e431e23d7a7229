"""`observe` over a sequence that is sharded over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.distributed.attending import Work, attend
from regard.distributed.attention import PATIENCE, asked_of
from regard.distributed.dtensors import local
from regard.distributed.inputs import prepared
from regard.distributed.observing import summarised
from regard.distributed.placing import check_merge
from regard.distributed.sharded_map import ShardedMap
from regard.distributed.sharding import Sharding
from regard.engine.inputs import Options
from regard.errors import RegardError
from regard.masks import Mask
from regard.scores import Bias, DotProduct, Score
from regard.stats import Entropy, MaxScore, MeanDistance, SinkMass, Statistic, by_name

__all__ = ["ShardedObservation", "observe"]

_DOT = DotProduct()
ROWS = (Entropy(), MaxScore(), MeanDistance(), SinkMass())


@dataclass(frozen=True)
class ShardedObservation:
    """This rank's part of an observation: output, statistics, and the map of the whole sequence.

    Row statistics cover this rank's queries, column statistics its keys; all others cover the whole map, and
    are the same on every rank.
    """

    out: Tensor
    lse: Tensor
    stats: dict[str, Any]
    map: ShardedMap

    def __getattr__(self, name: str) -> Any:
        stats = self.__dict__.get("stats", {})
        if name in stats:
            return stats[name]
        known = ", ".join(stats) or "none"
        raise AttributeError(f"{name!r} was not observed; observed were: {known}. Ask for it in stats=[...].")


def observe(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    *,
    stats: Sequence[Statistic] = ROWS,
    group: ProcessGroup | DeviceMesh | None = None,
    sharding: Sharding | None = None,
    key_sharding: Sharding | None = None,
    exchange: str = "auto",
    timeout: float = PATIENCE,
    scale: float | None = None,
    bias: Tensor | Bias | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    score: Score = _DOT,
    score_mod: Callable[..., Tensor] | None = None,
    backend: str = "auto",
) -> ShardedObservation:
    """`regard.observe` of one sequence whose positions are sharded over the ranks of a group.

    Arguments are those of `regard.distributed.attention`, and `stats`. Row statistics stay on the rank of
    their rows, column statistics are sent to the rank that holds the key, and all others are merged with
    `merge` in the order of ranks. Every rank must request the same statistics. They carry no gradient. For
    statistics that read values, and your own, every rank receives the values of all keys.
    """
    options = Options(mask, scale, bias, softcap, sink, score, score_mod)
    named, error = _named(stats)
    given = local(q, k, v, group, sharding)
    asked = asked_of("observe", given, options, sharding, key_sharding, exchange, backend, timeout)
    names = [f"{name}: {type(statistic).__name__}" for name, statistic in named.items()]
    work, _ = prepared(asked, {"statistics": names}, error)
    out, lse = attend(work)
    work = replace(work, call=_detached(work))
    with torch.no_grad():
        found = summarised(work, lse.detach(), named)
    return ShardedObservation(
        given.restore(work.call.problem.restore(out)), lse, found, ShardedMap(work, lse)
    )


def _named(stats: Sequence[Statistic]) -> tuple[dict[str, Statistic], RegardError | None]:
    """The statistics by name, or the error about them."""
    try:
        named = by_name(stats)
        for statistic in named.values():
            check_merge(statistic)
    except RegardError as error:
        return {}, error
    return named, None


def _detached(work: Work) -> Any:
    p = work.call.problem
    return replace(work.call, problem=replace(p, q=p.q.detach(), k=p.k.detach(), v=p.v.detach()))
