"""Writes layers of a recording to safetensors files, and reads them."""

from __future__ import annotations

import dataclasses
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

import regard.stats
from regard.engine.gemm import aligned
from regard.errors import MaskError, RecordingError, ShapeError
from regard.maps import AttentionMap
from regard.maps.damage import believing
from regard.masks import Dense, Mask
from regard.models.buffers import Buffers
from regard.models.layer import Layer
from regard.models.manifest import COMPLETE, digest_of, read_manifest
from regard.models.rounding import Rounded, Rounding, largest_difference, restored, rounded
from regard.models.segment import Segment, joined
from regard.models.sites import Site
from regard.models.tensor_file import write_tensors
from regard.models.translate import Frame

__all__ = ["Draft", "check_file", "draft_of", "layer_from"]

# A mask that is a Python function is written as a matrix if it has at most this many cells.
CELLS = 1 << 24
Built = TypeVar("Built", Site, Frame)
TENSORS = ("q", "k", "v", "bias", "lse")


@dataclass(frozen=True)
class Draft:
    """A layer that is ready to be written: its tensors, which don't change any more, and its manifest
    entry."""

    layer: Layer
    segments: tuple[Segment, ...]
    """The layer's segments when the draft was made."""
    files: tuple[tuple[str, dict[str, Tensor], dict[str, str]], ...]
    """The files to write: name, tensors and layout of statistics. Files written before are in `entry`."""
    entry: dict[str, Any]
    ready: tuple[torch.cuda.Event | torch.Event, ...] = ()
    """What GPUs have to reach before the tensors may be read."""

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for _, tensors, _ in self.files for x in tensors.values())

    def write(self, folder: Path, buffers: Buffers | None = None) -> dict[str, Any]:
        """Write the files; returns the manifest entry."""
        for event in self.ready:
            event.synchronize()
        found = [
            _write_segment(tensors, folder / name, layout, buffers) for name, tensors, layout in self.files
        ]
        return {**self.entry, "segments": [*self.entry["segments"], *found]}


def draft_of(
    layer: Layer, stem: str, known: dict[str, Any] | None = None, rounding: Rounding | None = None
) -> Draft:
    """Prepare a layer for writing: one file for the prompt's rows, one for all generated rows.

    Rows of the prompt that are in `known`, an earlier entry, are not written again. Only they are rounded.
    Nothing may write to the layer's tensors before the draft is written: see `Layer.own`.
    """
    first, *later = layer.segments
    files, said, lse = [], known.get("rounded") if known else None, None
    if known:
        if said is not None and layer.whole:
            lse = _rounded(layer, Rounding(said["keys"], said["queries"]))[0].lse
    else:
        tensors, layout = _plain(first)
        if rounding and first.q is not None:
            said, lse = _round(layer, tensors, rounding)
        files.append((f"{stem}-0.safetensors", tensors, layout))
    if later:
        tensors, layout = _plain(joined(later))
        if lse is not None and layer.whole:
            tensors["lse"] = lse[:, :, first.rows :].contiguous()
        files.append((f"{stem}-1.safetensors", tensors, layout))
    entry = {
        "site": dataclasses.asdict(layer.site),
        "frame": dataclasses.asdict(layer.frame),
        "mask": _mask_json(layer),
        "mask_text": layer.mask_text,
        "scale": layer.options["scale"],
        "softcap": layer.options["softcap"],
        "sink": None if layer.options["sink"] is None else layer.options["sink"].tolist(),
        "whole": layer.whole,
        "row_stats": sorted(layer.row_stats),
        "segments": known["segments"][:1] if known else [],
    }
    if said is not None:
        entry["rounded"] = said
    devices = {x.device for _, tensors, _ in files for x in tensors.values() if x.is_cuda}
    ready = tuple(torch.cuda.current_stream(device).record_event() for device in devices)
    return Draft(layer, tuple(layer.segments), tuple(files), entry, ready)


def layer_from(entry: dict[str, Any], folder: Path) -> Layer:
    """A layer whose tensors are mapped from its files, and checked, on first access."""
    layer = Layer(_built(Site, entry["site"]))
    layer.frame = _built(Frame, entry["frame"])
    written = entry["mask"]
    layer.mask = layer.first_mask = None if not isinstance(written, dict) else Mask.from_json(written)
    sink = entry["sink"]
    layer.options = {
        "scale": entry["scale"],
        "softcap": entry["softcap"],
        "sink": None if sink is None else torch.tensor(sink),
    }
    layer.whole = entry["whole"]
    layer.row_stats = frozenset(entry.get("row_stats", ()))
    layer.described = entry["mask_text"]
    layer.stored_bytes = sum(part["bytes"] for part in entry["segments"])
    layer.unwritten = written if isinstance(written, str) else None
    layer.rounded = Rounded.of(entry.get("rounded"))
    layer.source = lambda: [_read_segment(part, folder, layer.rounded) for part in entry["segments"]]
    return layer


def _built(kind: type[Built], said: dict[str, Any]) -> Built:
    """Build a dataclass from the values in a manifest, and check the type of each field."""
    made = kind(**said)
    for field in dataclasses.fields(made):  # pyright: ignore[reportArgumentType]
        value = getattr(made, field.name)
        if type(value).__name__ != field.type:
            raise RecordingError(
                f"{field.name} is {value!r}; a {kind.__name__} of a recording has {field.type} there. Record "
                "again."
            )
    return made


def check_file(entry: dict[str, Any], folder: Path, *, content: bool) -> Path:
    """Raise RecordingError, with the file's name, unless the file exists and is intact."""
    name, wanted, digest = entry["file"], entry["bytes"], entry["sha256"]
    path = folder / name
    if path.name != name:
        raise RecordingError(f"{folder} names {name!r}, which is no file of that folder. Record again.")
    if not path.is_file():
        if _is_replaced(entry, folder):
            raise RecordingError(
                f"{folder} was replaced by another recording after this one was opened. Open it again with "
                "Recording.open."
            )
        raise RecordingError(f"{path} is missing, and the recording needs it. Record again.")
    size = path.stat().st_size
    if size != wanted:
        raise RecordingError(
            f"{path} has {size} bytes and should have {wanted}: it was cut or overwritten. Record again."
        )
    if content and digest_of(path) != digest:
        raise RecordingError(f"{path} is damaged: its checksum does not match the manifest. Record again.")
    return path


def _is_replaced(entry: dict[str, Any], folder: Path) -> bool:
    """Whether the folder now holds another complete recording, whose manifest doesn't list this file."""
    try:
        about = read_manifest(folder / COMPLETE)
    except RecordingError:
        return False
    named = {part["file"] for layer in about["layers"] for part in layer["segments"]}
    return entry["file"] not in named | {about["tokens"]["file"]}


def _plain(segment: Segment) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a segment by name, each contiguous, and the layout of its statistics."""
    tensors = {name: x for name in TENSORS if (x := getattr(segment, name)) is not None}
    layout: dict[str, str] = {}
    for name, value in segment.stats.items():
        layout[name] = _flatten(name, value, tensors)
    return {name: x.detach().contiguous() for name, x in tensors.items()}, layout


def _round(
    layer: Layer, tensors: dict[str, Tensor], rounding: Rounding
) -> tuple[dict[str, Any] | None, Tensor | None]:
    """Round queries and keys in `tensors`, and give rows the log-sum-exp with which they still sum to 1.

    Returns what the manifest says about it, and the log-sum-exp of all rows; None if nothing changes.
    """
    rough, small = _rounded(layer, rounding)
    if not small:
        return None, None
    tensors |= {**small, "lse": rough.lse[:, :, : layer.prompt].contiguous()}
    rows, largest = largest_difference(layer.map, rough)
    keys, queries = (word if x in small else None for x, word in rounding.words.items())
    dtype = str(rough.problem.q.dtype).removeprefix("torch.")
    return dataclasses.asdict(Rounded(keys, queries, dtype, rows, largest)), rough.lse


def _rounded(layer: Layer, rounding: Rounding) -> tuple[AttentionMap, dict[str, Tensor]]:
    """The map with rounded queries and keys of the first call, and the tensors to write in their place."""
    first, small = layer.segments[0], dict[str, Tensor]()
    changed: dict[str, Tensor] = {}
    for name, word in rounding.words.items():
        x = getattr(first, name)
        fewer, scale = (x, None) if word is None else rounded(x, word)
        if fewer.dtype != x.dtype:
            changed[name] = restored(fewer, scale, str(x.dtype).removeprefix("torch."))
            small |= {name: fewer.contiguous()} if scale is None else {name: fewer, f"{name}.scale": scale}
    rough = copy(layer)
    rough.segments = [replace(first, **changed), *layer.segments[1:]]
    return rough.reweighed(), small


def _write_segment(
    tensors: dict[str, Tensor], path: Path, layout: dict[str, str], buffers: Buffers | None = None
) -> dict[str, Any]:
    """Write one file; returns its manifest entry."""
    draft = path.with_name(f"{path.name}.tmp")
    size, digest = write_tensors(tensors, draft, buffers)
    draft.replace(path)
    return {"file": path.name, "bytes": size, "sha256": digest, "stats": layout}


def _read_segment(entry: dict[str, Any], folder: Path, rough: Rounded | None = None) -> Segment:
    from safetensors import safe_open

    path = check_file(entry, folder, content=True)
    with believing(path, RecordingError, "Record again."):
        with safe_open(str(path), "pt") as file:
            tensors = {name: aligned(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a dict
        if rough is not None:
            for name in ("q", "k"):
                if name in tensors:
                    tensors[name] = restored(tensors[name], tensors.pop(f"{name}.scale", None), rough.dtype)
        stats = {name: _unflatten(name, layout, tensors) for name, layout in entry["stats"].items()}
        segment = Segment(stats=stats, **{name: tensors[name] for name in TENSORS if name in tensors})
        _check_segment(segment)
        return segment


def _check_segment(segment: Segment) -> None:
    """Raise ShapeError unless the shapes of a segment's tensors are consistent."""
    batch, heads, rows = segment.lse.shape
    found = {name: tuple(x.shape) for name in TENSORS if (x := getattr(segment, name)) is not None}
    q, k, v = (found.get(name) for name in ("q", "k", "v"))
    fits = (q is None or q[:-1] == (batch, heads, rows)) and (
        k is None or (len(k) == 4 and k[0] == batch and k[1] > 0 and heads % k[1] == 0)
    )
    if not fits or (v is not None and (k is None or len(v) != 4 or v[:3] != k[:3])):
        raise ShapeError(f"shapes {found} do not go together")


def _flatten(name: str, value: Any, tensors: dict[str, Tensor]) -> str:
    """Add a statistic's tensors to `tensors`; returns the layout that rebuilds the statistic."""
    if isinstance(value, Tensor):
        tensors[f"stats.{name}"] = value
        return "tensor"
    if hasattr(value, "_fields") and hasattr(regard.stats, type(value).__name__):
        tensors |= {f"stats.{name}.{field}": x for field, x in zip(value._fields, value, strict=True)}
        return type(value).__name__
    raise RecordingError(
        f"{name} is a {type(value).__name__}, which cannot be saved; watch without it to save the rest."
    )


def _unflatten(name: str, layout: str, tensors: dict[str, Tensor]) -> Any:
    if layout == "tensor":
        return tensors[f"stats.{name}"]
    kind = getattr(regard.stats, layout)
    return kind(*(tensors[f"stats.{name}.{field}"] for field in kind._fields))


def _mask_json(layer: Layer) -> dict[str, Any] | str | None:
    """The mask as JSON; a function's matrix if it is small; otherwise the reason why it can't be written."""
    mask = layer.mask if layer.whole else layer.first_mask
    if mask is None:
        return None
    try:
        return mask.to_json()
    except MaskError as error:
        first = layer.segments[0].lse
        rows = layer.rows if layer.whole else layer.prompt
        keys = layer.keys
        bound = mask.bind(*first.shape[:2])
        if rows * keys * (bound.batch or 1) * (bound.heads or 1) > CELLS:
            return str(error)
        return Dense(bound.dense(rows, keys)).to_json()
