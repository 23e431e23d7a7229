"""`attention` over a sequence that is cut over many processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.distributed.attending import attend
from regard.distributed.dtensors import Local, local
from regard.distributed.heads import attend_heads
from regard.distributed.inputs import Asked, prepared
from regard.distributed.plan import Plan
from regard.distributed.sharding import Sharding
from regard.engine.inputs import Options
from regard.masks import Mask
from regard.scores import Bias, DotProduct, Score

__all__ = ["PATIENCE", "asked_of", "attention", "explain_exchange"]

_DOT = DotProduct()
PATIENCE = 60.0


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    *,
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
) -> Tensor:
    """`regard.attention` of one sequence whose positions are cut over the ranks of a group.

    q, k and v are this rank's shards, plain tensors or DTensors that are sharded along the sequence; so is
    the output. `sharding` says which positions each rank holds (equal contiguous shards if it is not given),
    `key_sharding` the same of keys and values where they differ. Masks, biases and score_mod speak in
    positions of the whole sequence and are the same on all ranks; a dense bias has all keys, and all queries
    or this rank's.

    `exchange` is "gather" (all keys at once), "ring" (one rank's keys at a time, while those of another are
    computed), "heads" (all-to-all over heads) or "auto"; `explain_exchange` returns the choice. `timeout` is
    how many seconds a rank waits for the others. Each rank has its own share of the gradients of sink, bias
    and score parameters: sum them over the ranks, as data parallelism does.
    """
    options = Options(mask, scale, bias, softcap, sink, score, score_mod)
    return _run(q, k, v, options, group, sharding, key_sharding, exchange, backend, timeout)


def _run(q: Any, k: Any, v: Any, options: Options, group: Any, *rest: Any) -> Tensor:
    given = local(q, k, v, group, rest[0])
    work, _ = prepared(asked_of("attention", given, options, *rest))
    out = attend_heads(work.call, work.ranks, work.needs) if work.how == "heads" else attend(work)[0]
    return given.restore(work.call.problem.restore(out))


def explain_exchange(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    *,
    group: ProcessGroup | DeviceMesh | None = None,
    sharding: Sharding | None = None,
    key_sharding: Sharding | None = None,
    exchange: str = "auto",
    timeout: float = PATIENCE,
    backend: str = "auto",
    **options: Any,
) -> Plan:
    """Which exchange `attention` would use, why, and what this rank sends; all ranks must ask."""
    given = local(q, k, v, group, sharding)
    call = asked_of(
        "attention", given, Options(mask, **options), sharding, key_sharding, exchange, backend, timeout
    )
    return prepared(call)[1]


def asked_of(
    what: str,
    given: Local,
    options: Options,
    sharding: Sharding | None,
    key_sharding: Sharding | None,
    exchange: str,
    backend: str,
    timeout: float,
) -> Asked:
    """A call, with what DTensors say about themselves."""
    layout = given.sharding or sharding
    return Asked(
        what,
        given.q,
        given.k,
        given.v,
        options,
        given.group,
        layout,
        key_sharding or given.key_sharding,
        exchange,
        backend,
        timeout,
    )
