"""Exact attention and statistics of one sequence sharded over processes, on torch.distributed."""

from regard.distributed.attention import attention, explain_exchange
from regard.distributed.observation import ShardedObservation, observe
from regard.distributed.plan import Plan
from regard.distributed.sharded_map import ShardedMap
from regard.distributed.sharding import Sharding
from regard.distributed.shards import shard, unshard

__all__ = [
    "Plan",
    "ShardedMap",
    "ShardedObservation",
    "Sharding",
    "attention",
    "explain_exchange",
    "observe",
    "shard",
    "unshard",
]
