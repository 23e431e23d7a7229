"""One sequence over many processes: exact attention, and its statistics, on torch.distributed."""

from regard.distributed.attention import attention, explain_exchange
from regard.distributed.plan import Plan
from regard.distributed.sharding import Sharding
from regard.distributed.shards import shard, unshard

__all__ = ["Plan", "Sharding", "attention", "explain_exchange", "shard", "unshard"]
