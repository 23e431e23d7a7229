"""The local engine: reads shards in the current process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.corpus.shard import ShardWorker

__all__ = ["in_this_process"]


def in_this_process(worker: ShardWorker, shards: Sequence[int], tell: Callable[[int, int], None]) -> None:
    """Read shards one after another; `tell(shard, documents)` after every batch."""
    for shard in shards:
        worker.work(shard, lambda documents, shard=shard: tell(shard, documents))
