"""`shard` and `unshard`: cut a sequence into shards, and join them."""

from __future__ import annotations

from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.distributed.agreement import agree
from regard.distributed.ranks import Ranks, ranks_of
from regard.distributed.sharding import Sharding
from regard.errors import DistributedError

__all__ = ["shard", "unshard", "whole_of"]


def shard(
    x: Tensor, sharding: Sharding, dim: int = -2, *, group: ProcessGroup | DeviceMesh | None = None
) -> Tensor:
    """This rank's positions of a whole sequence that every rank has; without communication.

    `dim` is the sequence: -2 for q, k and v, 1 for token ids and `position_ids`.
    """
    ranks = ranks_of(group, x.device, 60.0)
    if x.shape[dim] != sharding.length or sharding.ranks != ranks.size:
        raise DistributedError(
            f"x has {x.shape[dim]} positions along dim {dim} and the group {ranks.size} ranks; the sharding "
            f"is for {sharding.length} positions and {sharding.ranks} ranks."
        )
    return x.index_select(dim, sharding.positions(ranks.rank, x.device))


def unshard(
    x: Tensor,
    sharding: Sharding,
    dim: int = -2,
    *,
    group: ProcessGroup | DeviceMesh | None = None,
    timeout: float = 60.0,
) -> Tensor:
    """The whole sequence from the shards of all ranks, on every rank; all must call it.

    Use it to read results: the whole sequence carries no gradient. Compute losses on shards.
    """
    ranks = ranks_of(group, x.device, timeout)
    error = None
    if sharding.ranks != ranks.size or x.shape[dim] != sharding.sizes[ranks.rank]:
        error = DistributedError(
            f"x has {x.shape[dim]} positions along dim {dim}; {sharding!r} gives this rank another number."
        )
    axis = dim % x.ndim
    shape = [*x.shape[:axis], -1, *x.shape[axis + 1 :]]
    agree(ranks, "unshard", {"shape": shape, "dtype": str(x.dtype), "sharding": repr(sharding)}, error)
    return whole_of(ranks, x.detach(), sharding, axis)


def whole_of(ranks: Ranks, x: Tensor, sharding: Sharding, axis: int) -> Tensor:
    """The same after the ranks have compared their arguments."""
    others = [rank for rank in range(ranks.size) if rank != ranks.rank]
    shape = list(x.shape)
    lands = {}
    for rank in others:
        shape[axis] = sharding.sizes[rank]
        lands[rank] = x.new_empty(shape)
    ranks.swap(dict.fromkeys(others, x), lands).wait()
    shape[axis] = sharding.length
    found = x.new_empty(shape)
    for rank in range(ranks.size):
        part = x if rank == ranks.rank else lands[rank]
        found.index_copy_(axis, sharding.positions(rank, x.device), part)
    return found
