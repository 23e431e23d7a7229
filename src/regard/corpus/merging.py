"""Joins the states of all shards in a fixed order, so that the bits don't depend on the number of workers."""

from __future__ import annotations

import hashlib
from typing import Any

from regard.corpus.plan import Plan
from regard.corpus.shard import is_done, read_shard
from regard.corpus.state import State
from regard.corpus.store import Store
from regard.errors import CorpusError

__all__ = ["ATLAS", "merged", "missing", "write_atlas"]

ATLAS = "atlas"


def missing(store: Store, plan: Plan) -> list[int]:
    """The shards that have not been read yet."""
    names = set(store.names("shards"))
    return [shard for shard in range(plan.shards) if not is_done(names, shard)]


def merged(store: Store, plan: Plan) -> State:
    """The state of the whole corpus, joined along a binary tree of shards."""
    lacking = missing(store, plan)
    if lacking:
        raise CorpusError(
            f"{store.where} lacks {len(lacking)} of its {plan.shards} shards (the first is {lacking[0]}); go "
            "on with --resume, or run the parts of the array job that are missing."
        )
    return _tree(store, range(plan.shards))


def write_atlas(store: Store, plan: Plan, state: State) -> None:
    """Write the merged state; the run is complete once its JSON exists."""
    sums, about = state.to_bytes()
    store.write(f"{ATLAS}.safetensors", sums)
    entry: dict[str, Any] = {"bytes": len(sums), "sha256": hashlib.sha256(sums).hexdigest()}
    store.write_json(f"{ATLAS}.json", {"sums": entry, "plan": plan.about, **about})


def _tree(store: Store, shards: range) -> State:
    if len(shards) == 1:
        return read_shard(store, shards[0])
    middle = len(shards) // 2
    return _tree(store, shards[:middle]).merge(_tree(store, shards[middle:]))
