"""Validates the arguments of each rank by themselves, and against those of the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.distributed.agreement import agree, described_mask
from regard.distributed.attending import Work
from regard.distributed.heads import heads_refusal
from regard.distributed.needs import Needs
from regard.distributed.partial import Call, local_problem
from regard.distributed.plan import EXCHANGES, Plan, planned
from regard.distributed.ranks import Ranks, ranks_of
from regard.distributed.sharding import Sharding
from regard.engine.inputs import Options
from regard.engine.problem import Problem
from regard.errors import DeviceError, DistributedError, RegardError, ScoreError, ShapeError
from regard.masks import Mask

__all__ = ["Asked", "prepared"]


@dataclass(frozen=True)
class Asked:
    """The arguments of a call on this rank."""

    what: str
    q: Tensor
    k: Tensor
    v: Tensor
    options: Options
    group: ProcessGroup | DeviceMesh | None
    sharding: Sharding | None
    key_sharding: Sharding | None
    exchange: str
    backend: str
    timeout: float


def prepared(
    asked: Asked, more: dict[str, Any] | None = None, error: RegardError | None = None
) -> tuple[Work, Plan]:
    """The work of this rank, after all ranks have compared their arguments; if they differ, all raise."""
    device = asked.q.device if isinstance(asked.q, Tensor) else torch.device("cpu")
    ranks = ranks_of(asked.group, device, asked.timeout)
    problem = None
    try:
        problem = local_problem(asked.q, asked.k, asked.v, asked.options)
        _check_options(asked)
    except RegardError as found:
        error = found
    notes = agree(ranks, asked.what, _note(asked, problem, more), error)
    if problem is None:
        raise DistributedError("this rank has nothing to compute")
    # From here on, errors depend only on data that all ranks share, so all raise alike without communication.
    held = [tuple(note) for note in notes]
    queries = _layout("q", asked.sharding, [n[0] for n in held], ranks)
    keys = _layout("k", asked.key_sharding or asked.sharding, [n[1] for n in held], ranks)
    mask = _bound(asked.options.mask, problem, queries, keys)
    needs = Needs(mask, queries, keys)
    problem, bias_rows = _with_bias(problem, asked.options.bias, needs, [n[2] for n in held])
    call = Call(problem, mask, needs.offset, bias_rows, asked.backend)
    plan = planned(problem, needs, ranks.rank, asked.exchange, _no_heads(asked, problem, needs, bias_rows))
    return Work(call, ranks, needs, plan.exchange, asked.what), plan


def _no_heads(asked: Asked, problem: Problem, needs: Needs, bias_rows: str) -> str | None:
    if asked.what == "observe":
        return "`observe` reads the map where its rows are"
    return heads_refusal(problem, needs, bias_rows)


def _check_options(asked: Asked) -> None:
    if asked.exchange not in EXCHANGES:
        raise DistributedError(
            f"exchange={asked.exchange!r} is unknown; there are {', '.join(map(repr, EXCHANGES))}."
        )
    bias = asked.options.bias
    if isinstance(bias, Tensor) and (bias.dtype == torch.bool or not bias.is_floating_point()):
        raise ScoreError(f"bias is {bias.dtype}; it must be a float tensor. A bool mask belongs in mask=.")
    if isinstance(bias, Tensor) and bias.device != asked.q.device:
        raise DeviceError(f"bias is on {bias.device} and q on {asked.q.device}. Move it with .to(q.device).")
    if asked.options.dropout:
        raise DistributedError(
            "dropout is drawn tile by tile, and which tiles there are depends on the number of ranks; it "
            "would not be the same twice. Use dropout=0."
        )
    for name in ("sharding", "key_sharding"):
        given = getattr(asked, name)
        if given is not None and not isinstance(given, Sharding):
            raise DistributedError(f"{name} is a {type(given).__name__}; give a Sharding, or None.")
    mask = asked.options.mask
    if mask is not None and not isinstance(mask, Mask):
        # The engine's own error says how to wrap it.
        local_mask_check(asked)


def local_mask_check(asked: Asked) -> None:
    """Let the engine raise for arguments that are not masks."""
    from regard.engine.inputs import problem_of

    problem_of(asked.q, asked.k, asked.v, asked.options)


def _note(asked: Asked, problem: Problem | None, more: dict[str, Any] | None) -> dict[str, Any]:
    """The data that must be equal on all ranks; "own" are this rank's numbers of queries and keys."""
    options = asked.options
    note: dict[str, Any] = {"own": [0, 0, 0]}
    bias = options.bias
    dense = isinstance(bias, Tensor)
    if problem is not None:
        p = problem
        shapes = [[*x.shape[:2], x.shape[3]] for x in (p.q, p.k, p.v)]
        note = {
            "own": [p.q_len, p.k_len, bias.shape[-2] if dense and bias.ndim > 1 else 1],
            "shapes (batch, heads, dim) of q, k and v": shapes,
            "dtype": str(p.q.dtype),
            "device": p.q.device.type,
            "gradients": [torch.is_grad_enabled() and x.requires_grad for x in (p.q, p.k, p.v)],
            "scale": p.scoring.scale,
        }
    note |= {
        "mask": described_mask(options.mask),
        "sharding": repr((asked.sharding, asked.key_sharding)),
        "bias": [*bias.shape[:-2], bias.shape[-1], str(bias.dtype)] if dense and bias.ndim else repr(bias),
        "soft cap": options.softcap,
        "sink": options.sink is not None,
        "score": repr(options.score),
        "score_mod": getattr(options.score_mod, "__qualname__", type(options.score_mod).__name__),
        "exchange": asked.exchange,
        "backend": asked.backend,
        **(more or {}),
    }
    return {name: value if " at 0x" not in str(value) else "an object" for name, value in note.items()}


def _layout(name: str, given: Sharding | None, lengths: list[int], ranks: Ranks) -> Sharding:
    """The given layout, after checking its lengths; by default equal contiguous shards."""
    held = ", ".join(map(str, lengths))
    if given is None:
        if len(set(lengths)) > 1:
            raise DistributedError(
                f"the ranks hold {held} positions of {name}, and nothing says which; shards of unequal "
                f"length need sharding=Sharding.of_lengths([{held}]), or the layout they were cut by."
            )
        if lengths[0] == 0:
            raise DistributedError(
                f"no rank holds any position of {name}: a sequence shorter than the number of ranks, "
                f"{ranks.size}, cannot be cut. Start fewer ranks."
            )
        return Sharding.of_lengths(lengths)
    if list(given.sizes) != lengths:
        wanted = ", ".join(map(str, given.sizes))
        raise DistributedError(
            f"the ranks hold {held} positions of {name}, and {given!r} gives them {wanted}. Cut {name} with "
            "shard(x, sharding), or give the layout it was cut by."
        )
    return given


def _bound(mask: Mask | None, problem: Problem, queries: Sharding, keys: Sharding) -> Mask | None:
    if mask is None:
        return None
    mask = mask.bind(problem.batch, problem.heads)
    mask.check(queries.length, keys.length, problem.batch, problem.heads)
    return mask


def _with_bias(problem: Problem, bias: object, needs: Needs, rows: list[int]) -> tuple[Problem, str]:
    """A dense bias is (batch, heads, q, k) over all keys, and over all queries or those of each rank."""
    if not isinstance(bias, Tensor):
        return problem, "sequence"
    total, own, keys = needs.queries.length, list(needs.queries.sizes), needs.keys.length
    shape = (1,) * (4 - bias.ndim) + tuple(bias.shape)
    whole = set(rows) <= {1, total}
    fits = shape[0] in (1, problem.batch) and shape[1] in (1, problem.heads) and shape[3] in (1, keys)
    if bias.ndim > 4 or not fits or not (whole or rows == own):
        raise ShapeError(
            f"bias has shape {tuple(bias.shape)}; over several ranks it must broadcast to "
            f"(batch, heads, q, k) with all {keys} keys, and with all {total} "
            "queries or, on every rank, those of the rank."
        )
    scoring = replace(problem.scoring, bias=bias.view(shape))
    return replace(problem, scoring=scoring), "sequence" if whole else "rank"
