"""Recordings written by several processes: each writes a part, and a reader joins the parts.

Under tensor parallelism every process has some of the heads; with a sharded sequence it has some of the
tokens. A part is an ordinary recording in the folder `part-N`. The file `parts.json` is written last and says
how to join them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from regard.errors import DistributedError, RecordingError
from regard.maps.damage import believing
from regard.models.layer import Layer
from regard.models.manifest import read_manifest, write_manifest
from regard.models.recording import Recording
from regard.models.segment import Segment, mapped, tensors_of
from regard.models.tokens import Token
from regard.models.translate import Frame

__all__ = ["PARTS", "Parts", "joined_parts"]

PARTS = "parts.json"
KINDS = ("heads", "sequence")


@dataclass
class Parts:
    """This process's part of a recording that all processes of a group write.

    Leaving the block waits for the other processes. If one of them has failed, all raise, and the parts are
    not joined.
    """

    path: Path
    group: ProcessGroup | None
    kind: str
    places: dict[str, str]
    """For each statistic, whether it has one entry per row, per key (`columns`), or one per map."""

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def own(self) -> Path:
        """The folder that this process writes to."""
        return self.path / f"part-{self.rank}"

    def begin(self, overwrite: bool) -> None:
        """Check the folder before anything is written. If one rank finds a fault, all ranks raise."""
        faults = [fault for fault in self._told(self._fault(overwrite)) if fault is not None]
        if faults:
            raise RecordingError(faults[0])
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / PARTS).unlink(missing_ok=True)

    def _fault(self, overwrite: bool) -> str | None:
        if (self.path / PARTS).exists() and not overwrite:
            return (
                f"{self.path} holds a recording already, and it is not overwritten. Choose another name, or "
                "replace it with overwrite=True."
            )
        if self.path.is_file():
            return f"{self.path} is a file; a recording is a folder. Choose another name."
        known = ("part-", ".part-", PARTS)
        if self.path.exists() and any(not file.name.startswith(known) for file in self.path.iterdir()):
            return f"{self.path} holds something other than parts of a recording. Choose another name."
        return None

    def _told(self, own: str | None) -> list[str | None]:
        """The messages of all ranks."""
        told: list[str | None] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(told, own, group=self.group)
        return told

    def finish(self, error: BaseException | None) -> None:
        """Exchange errors with the other ranks; if there are none, the first rank writes `parts.json`."""
        told = self._told(None if error is None else repr(error))
        failed = {rank: said for rank, said in enumerate(told) if said is not None}
        if failed and error is None:
            rank, said = next(iter(failed.items()))
            raise DistributedError(f"rank {rank} failed while it recorded, so there is no recording: {said}")
        if not failed and self.rank == 0:
            about = {"kind": self.kind, "parts": len(told), "places": self.places}
            write_manifest(self.path / PARTS, about)


def joined_parts(path: Path, read: Callable[[Path], Recording]) -> Recording:
    """The recording that is joined from the parts in a folder; each layer is joined on first access."""
    about = read_manifest(path / PARTS)
    with believing(path / PARTS, RecordingError, "Record again."):
        count, kind, places = int(about["parts"]), about["kind"], dict(about["places"])
        if kind not in KINDS or count < 1:
            raise RecordingError(f"{path / PARTS} describes parts of an unknown kind, {kind!r}.")
    parts = [read(path / f"part-{rank}") for rank in range(count)]
    first = parts[0]
    if any([layer.site for layer in part.all_layers] != [x.site for x in first.all_layers] for part in parts):
        raise RecordingError(f"{path}: its parts have different layers. Record again.")
    whole = Recording(first.model)
    whole.path, whole.complete = path, all(part.complete for part in parts)
    whole.tokenizer, whole.texts = first.tokenizer, first.texts
    join = _Join(kind, places)
    for layers in zip(*(part.all_layers for part in parts), strict=True):
        whole.put(join.layer(layers))
    join.tokens(whole, parts)
    return whole


@dataclass(frozen=True)
class _Join:
    """Joins the parts of a recording."""

    kind: str
    places: dict[str, str]

    def layer(self, parts: Sequence[Layer]) -> Layer:
        """One layer; its tensors are read and joined on first access."""
        first, layer = parts[0], Layer(parts[0].site)
        layer.mask, layer.first_mask, layer.described = first.mask, first.first_mask, first.described
        layer.whole, layer.unwritten = first.whole, first.unwritten
        layer.row_stats = first.row_stats
        layer.options = dict(first.options)
        layer.frame = first.frame
        if self.kind == "heads":
            sinks = [part.options["sink"] for part in parts]
            layer.options["sink"] = None if sinks[0] is None else torch.cat(sinks)
        else:
            tokens = sum(part.frame.q for part in parts)
            layer.frame = Frame(tokens, tokens)
        layer.stored_bytes = sum(part.stored_bytes for part in parts)
        layer.source = lambda: [
            self.segment(some) for some in zip(*(part.segments for part in parts), strict=True)
        ]
        return layer

    def segment(self, parts: Sequence[Segment]) -> Segment:
        """The rows of one call, joined over heads or over tokens."""
        axis = 1 if self.kind == "heads" else 2
        tensors: dict[str, Any] = {}
        for name in ("q", "k", "v", "lse", "bias"):
            some = [getattr(part, name) for part in parts]
            shared = some[0] is None or (name == "bias" and some[0].shape[1] == 1)
            tensors[name] = some[0] if shared else torch.cat(some, axis)
        stats = {name: self._statistic(name, [p.stats[name] for p in parts]) for name in parts[0].stats}
        return Segment(stats=stats, **tensors)

    def tokens(self, whole: Recording, parts: Sequence[Recording]) -> None:
        """The tokens: with parts by heads, every part has all; with parts by tokens, each has its own."""
        some = parts[:1] if self.kind == "heads" else parts
        whole.token_ids = {
            role: torch.cat([part.token_ids[role] for part in some], 1) for role in parts[0].token_ids
        }
        if whole.tokenizer is None:
            return
        rows: list[list[Token]] = [[] for _ in some[0].batch_tokens]
        for part in some:
            for row, tokens in zip(rows, part.batch_tokens, strict=True):
                # Character spans count from the beginning of each part.
                start = row[-1].stop if row else 0
                row += [
                    token._replace(start=token.start + start, stop=token.stop + start) for token in tokens
                ]
        whole.restore_tokens(rows, "decoder" if "decoder" in whole.token_ids else "encoder")

    def _statistic(self, name: str, values: list[Any]) -> Any:
        place = self.places.get(name, "whole")
        if self.kind == "sequence" and place == "whole":
            return values[0]

        def together(some: Sequence[Tensor]) -> Tensor:
            axis = 1 if self.kind == "heads" else some[0].ndim - 1 if place == "columns" else 2
            return torch.cat(list(some), axis) if some[0].ndim > axis else some[0]

        columns = zip(*(tensors_of(value) for value in values), strict=True)
        joined = iter([together(some) for some in columns])
        return mapped(values[0], lambda x: next(joined))
