"""Conversion from DTensors to local shards, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.distributed.sharding import Sharding
from regard.errors import DistributedError

__all__ = ["Local", "local"]


@dataclass(frozen=True)
class Local:
    """This rank's shards of q, k and v, and the DTensor placement, if any."""

    q: Any
    k: Any
    v: Any
    group: ProcessGroup | DeviceMesh | None
    sharding: Sharding | None = None
    key_sharding: Sharding | None = None
    around: Any = None

    def restore(self, out: Tensor) -> Tensor:
        """The output in the form of q: a DTensor, or a plain tensor."""
        if self.around is None:
            return out
        shape = (*self.around.shape[:-1], out.shape[-1])
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            out,
            self.around.device_mesh,
            self.around.placements,
            run_check=False,
            shape=torch.Size(shape),
            stride=tuple(strides),
        )


def local(q: Any, k: Any, v: Any, group: Any, sharding: Sharding | None) -> Local:
    """Convert DTensors to local shards; plain tensors are returned unchanged."""
    # Importing the DTensor module takes a second; a program that has a DTensor has imported it already.
    kinds = {type(x).__module__.startswith("torch.distributed.tensor") for x in (q, k, v)}
    if kinds == {False}:
        return Local(q, k, v, group)
    if kinds == {True, False}:
        raise DistributedError("some of q, k and v are DTensors and some are not; give all three alike.")
    from torch.distributed.tensor import Shard

    same_mesh = q.device_mesh == k.device_mesh == v.device_mesh
    if not (same_mesh and q.placements == k.placements == v.placements):
        raise DistributedError(
            f"q, k and v are placed differently: {q.placements}, {k.placements} and {v.placements}. "
            "Redistribute them to one placement on one mesh."
        )
    axis = q.ndim - 2
    over = [dim for dim, placement in enumerate(q.placements) if placement == Shard(axis)]
    if len(over) != 1 or any(p.is_partial() for p in q.placements):
        raise DistributedError(
            f"q, k and v are placed as {q.placements}; exactly one dimension of the mesh must be "
            f"Shard({axis}), along the sequence."
        )
    mesh = q.device_mesh
    if sharding is not None:
        raise DistributedError("DTensors say how they are cut; leave sharding out, or pass local tensors.")
    ranks = mesh.size(over[0])
    queries, keys = (Sharding.chunked(x.shape[axis], ranks) for x in (q, k))
    group = mesh.get_group(over[0])
    return Local(q.to_local(), k.to_local(), v.to_local(), group, queries, keys, around=q)
