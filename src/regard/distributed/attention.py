"""`attention` over a sequence that is sharded over processes."""

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
    """`regard.attention` of one sequence whose positions are sharded over the ranks of a group.

    q, k, v and the output are this rank's shards, plain tensors or DTensors that are sharded along the
    sequence. `sharding` says which positions each rank holds (by default equal contiguous shards);
    `key_sharding` does so for keys and values, if they differ. Masks, biases and score_mod use positions of
    the whole sequence, and are the same on all ranks; a dense bias has all keys, and all queries or this
    rank's.

    `exchange` is "gather" (receive all keys at once), "ring" (receive one rank's keys while computing with
    another's), "heads" (all-to-all over heads) or "auto"; `explain_exchange` returns the choice. `timeout` is
    the number of seconds that a rank waits for the others. Each rank has its own part of the gradients of
    sink, bias and score parameters: sum them over the ranks, as in data parallelism.
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
    """The exchange that `attention` would use, the reason, and what this rank sends. All ranks must call
    it."""
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
    """The arguments of a call; DTensors are replaced by their local shards and sharding."""
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
