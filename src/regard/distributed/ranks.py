"""The ranks of a process group, and point-to-point messages between them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.errors import DistributedError

__all__ = ["Ranks", "Traffic", "ranks_of"]


@dataclass
class Traffic:
    """The messages and bytes that this process has sent."""

    messages: int = 0
    bytes: int = 0


# The total that this process has sent for `regard.distributed`; tests and benchmarks take differences.
SENT = Traffic()


@dataclass
class Ranks:
    """A process group, this process's rank in it, and the timeout for the others."""

    group: ProcessGroup
    rank: int
    size: int
    timeout: float
    device: torch.device
    staged: bool
    """Whether GPU tensors are sent through host memory, because gloo supports only that."""
    backend: str = "gloo"
    calls: list[int] = field(default_factory=lambda: [0])

    @property
    def store(self) -> Any:
        """The key-value store of the group for small messages; it works with every backend."""
        return dist.PrefixStore(  # pyright: ignore[reportPrivateImportUsage]
            "regard", self.group.get_group_store()
        )

    def open(self) -> None:
        """Make a first call with all ranks, as NCCL requires: an exchange may leave some ranks out."""
        if self.backend == "nccl":
            dist.all_reduce(torch.zeros(1, device=self.device), group=self.group)

    def swap(self, sends: Mapping[int, Tensor], receives: Mapping[int, Tensor], tag: int = 0) -> Flight:
        """Start sending tensors to ranks, and receiving into empty tensors; both sides know all shapes."""
        kept: list[tuple[Tensor, Tensor]] = []
        ops: list[dist.P2POp] = []
        for peer, x in sorted(sends.items()):
            if x.numel():
                SENT.messages, SENT.bytes = SENT.messages + 1, SENT.bytes + x.numel() * x.element_size()
                travels = x.detach().contiguous()
                travels = travels.cpu() if self.staged and travels.is_cuda else travels
                kept.append((travels, travels))
                ops.append(self._op(dist.isend, travels, peer, tag))
        for peer, x in sorted(receives.items()):
            if x.numel():
                lands = torch.empty_like(x, device="cpu") if self.staged and x.is_cuda else x
                kept.append((x, lands))
                ops.append(self._op(dist.irecv, lands, peer, tag))
        try:
            works = dist.batch_isend_irecv(ops) if ops else []
        except RuntimeError as error:
            # The peer is gone already.
            raise self.lost(error) from error
        return Flight(works, kept, self)

    def lost(self, error: RuntimeError) -> DistributedError:
        """The error for an exchange that another rank does not take part in."""
        return DistributedError(
            f"rank {self.rank} lost another rank while exchanging tensors (it may have failed, or takes "
            f"longer than timeout={self.timeout:g} s): {str(error).splitlines()[0]}"
        )

    def _op(self, kind: Any, x: Tensor, peer: int, tag: int) -> dist.P2POp:
        return dist.P2POp(kind, x, group=self.group, tag=tag, group_peer=peer)


@dataclass
class Flight:
    """Messages being sent and received."""

    works: list[Any]
    kept: list[tuple[Tensor, Tensor]]
    ranks: Ranks

    def wait(self) -> None:
        """Wait until all have arrived; raises within the timeout if a peer fails or hangs."""
        end = time.monotonic() + self.ranks.timeout
        for work in self.works:
            try:
                if self.ranks.backend == "nccl":
                    # The stream waits, not this thread; NCCL's own watchdog bounds the time.
                    work.wait()
                else:
                    work.wait(timedelta(seconds=max(0.001, end - time.monotonic())))
            except RuntimeError as error:
                raise self.ranks.lost(error) from error
        for x, lands in self.kept:
            if lands is not x:
                x.copy_(lands)
        self.works, self.kept = [], []


# The number of calls per group, used for message names in the store.
CALLS: dict[str, list[int]] = {}


def ranks_of(group: ProcessGroup | DeviceMesh | None, device: torch.device, timeout: float) -> Ranks:
    """The ranks of a group, of a mesh with one dimension, or of all processes."""
    if not dist.is_available() or not dist.is_initialized():
        raise DistributedError(
            "there is no process group. Start the program with `torchrun --nproc-per-node=2 program.py` and "
            "call torch.distributed.init_process_group() in it first."
        )
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise DistributedError(
                f"the mesh has {group.ndim} dimensions, {group.mesh_dim_names}; name the one the sequence is "
                "cut over, for example mesh['cp']."
            )
        group = group.get_group()
    if group is None:
        group = dist.group.WORLD
    if not isinstance(group, ProcessGroup) or dist.get_rank(group) < 0:
        raise DistributedError(
            f"group is {group!r}, which this process is not in; give a ProcessGroup or a DeviceMesh of it."
        )
    backends = dict(part.split(":") for part in str(dist.get_backend_config(group)).split(","))
    backend = backends.get(device.type, "gloo")
    if backend not in ("gloo", "nccl"):
        raise DistributedError(f"tensors on {device} would travel by {backend!r}; gloo and nccl are known.")
    calls = CALLS.setdefault(group.group_name, [0])
    staged = device.type == "cuda" and backend == "gloo"
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return Ranks(group, rank, size, timeout, device, staged, backend, calls)
