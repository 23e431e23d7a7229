"""Recording of models that run on several processes: tensor parallelism and sharded sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.distributed.placing import check_merge, place_of
from regard.errors import DistributedError
from regard.models.parts import Parts
from regard.models.sharded import ShardedSequence
from regard.stats import SinkRate, Statistic

__all__ = ["Spread", "spread_of"]


@dataclass(frozen=True)
class Spread:
    """How a model is spread over processes: each has some of the `heads`, or some tokens of a `sequence`."""

    kind: str
    group: ProcessGroup | None
    stats: tuple[Statistic, ...]

    @contextmanager
    def sequence(self, model: Any) -> Iterator[ShardedSequence | None]:
        """Within the block, attention exchanges keys over ranks if the sequence is sharded."""
        if self.kind == "heads":
            yield None
            return
        with ShardedSequence(model, self.group).entered() as sequence:
            yield sequence

    @contextmanager
    def written(self, path: Path, overwrite: bool) -> Iterator[Path]:
        """Yield the folder that this process writes to; at the end of the block all processes synchronise."""
        places = {s.name: place_of(s) for s in self.stats}
        parts, error = Parts(path, self.group, self.kind, places), None
        parts.begin(overwrite)
        try:
            yield parts.own
        except BaseException as raised:
            error = raised
            raise
        finally:
            parts.finish(error)


def spread_of(
    model: Any,
    mesh: ProcessGroup | DeviceMesh | None,
    store: str | Path | None,
    stats: tuple[Statistic, ...],
    resume: bool,
) -> Spread:
    """How a model is spread over processes."""
    if resume and store is not None:
        raise DistributedError("parts of a recording cannot be resumed; write it anew with overwrite=True.")
    if mesh is not None:
        _check_sequence(store, stats)
        return Spread("sequence", _group_of(mesh), stats)
    for statistic in stats:
        if statistic.needs_all_heads or isinstance(statistic, SinkRate):
            raise DistributedError(
                f"{statistic.name} compares heads, and this model has some of them on each process. Record "
                "it without tensor parallelism, or leave that statistic out."
            )
    device_mesh = model._device_mesh
    names = device_mesh.mesh_dim_names or ()
    return Spread("heads", device_mesh["tp"].get_group() if "tp" in names else device_mesh.get_group(), stats)


def _check_sequence(store: str | Path | None, stats: Sequence[Statistic]) -> None:
    if not dist.is_initialized():
        raise DistributedError(
            "watch(mesh=...) needs a process group: start the program with torchrun, and call "
            "torch.distributed.init_process_group() first."
        )
    if store is None:
        raise DistributedError(
            "watch(mesh=...) writes each rank's part to disk, and none of them could read a map alone; give "
            "store=, and open it with Recording.open afterwards."
        )
    for statistic in stats:
        check_merge(statistic)


def _group_of(mesh: ProcessGroup | DeviceMesh) -> ProcessGroup:
    if isinstance(mesh, ProcessGroup):
        return mesh
    if mesh.ndim != 1:
        raise DistributedError(
            f"mesh has {mesh.ndim} dimensions; give the one the sequence is cut along, such as mesh['cp']."
        )
    return mesh.get_group()
