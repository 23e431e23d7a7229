"""The shapes of a recording's maps, without reading the maps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.errors import RecordingError
from regard.maps.damage import believing
from regard.masks import And, Causal, Documents, Mask, Window
from regard.models import Layer, Recording
from regard.viewer.pooling import levels_of

__all__ = ["StackShape", "shapes_in_memory", "shapes_on_disk"]


@dataclass(frozen=True)
class StackShape:
    """The shape of one stack's maps, which a page needs before it requests any map.

    `windows`: the number of keys that a query of each layer sees, null if it sees all earlier keys.
    `documents`: the tokens at which a new document starts.
    """

    role: str
    layers: list[int]
    heads: int
    kv_heads: int
    queries: int
    keys: int
    windows: dict[int, int | None]
    documents: list[int]
    causal: bool
    levels: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def shapes_in_memory(recording: Recording) -> dict[str, StackShape]:
    """The stacks of a recording in memory."""
    found = {}
    for role, stack in recording.stacks.items():
        first = next(iter(stack.values()))
        q, k = first.segments[0].q, first.segments[0].k
        heads = first.segments[0].lse.shape[1]
        kv_heads = heads if q is None or k is None else k.shape[1]
        found[role] = _shape(role, list(stack.values()), heads, kv_heads, first.rows, first.keys)
    return found


def shapes_on_disk(recording: Recording, about: dict[str, Any], folder: Path) -> dict[str, StackShape]:
    """The stacks of a recording on disk, from the headers of its files."""
    with believing(folder, RecordingError, "Record again."):
        return {
            role: _on_disk(role, list(stack.values()), about, folder)
            for role, stack in recording.stacks.items()
        }


def _on_disk(role: str, layers: list[Layer], about: dict[str, Any], folder: Path) -> StackShape:
    entry = next(
        entry
        for entry in about["layers"]
        if (entry["site"]["role"], entry["site"]["index"]) == (role, layers[0].index)
    )
    parts = entry["segments"] if entry["whole"] else entry["segments"][:1]
    headers = [_header(folder / part["file"]) for part in parts]
    queries = sum(header["lse"][2] for header in headers)
    keys = sum(header["k"][2] for header in headers if "k" in header)
    heads = headers[0]["lse"][1]
    kv_heads = headers[0].get("k", headers[0]["lse"])[1]
    return _shape(role, layers, heads, kv_heads, queries, keys)


def _shape(role: str, layers: list[Layer], heads: int, kv_heads: int, queries: int, keys: int) -> StackShape:
    parts = {layer.index: _parts(layer.mask) for layer in layers}
    windows = {index: _window(masks) for index, masks in parts.items()}
    first = parts[layers[0].index]
    starts = next((_starts(mask) for mask in first if isinstance(mask, Documents)), [])
    causal = any(isinstance(mask, Causal) for mask in first)
    numbers = [layer.index for layer in layers]
    return StackShape(
        role, numbers, heads, kv_heads, queries, keys, windows, starts, causal, levels_of(queries, keys)
    )


def _parts(mask: Mask | None) -> tuple[Mask, ...]:
    return () if mask is None else mask.parts if isinstance(mask, And) else (mask,)


def _window(masks: tuple[Mask, ...]) -> int | None:
    return min((mask.left for mask in masks if isinstance(mask, Window)), default=None)


def _starts(mask: Documents) -> list[int]:
    """Where documents begin in the first text."""
    ids = mask.ids[0] if mask.ids.ndim == 2 else mask.ids
    return [0, *((ids[1:] != ids[:-1]).nonzero().flatten() + 1).tolist()]


def _header(file: Path) -> dict[str, list[int]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), "pt") as opened:
            names = {"lse", "k"} & set(opened.keys())
            return {name: opened.get_slice(name).get_shape() for name in names}
    except (SafetensorError, OSError) as error:
        raise RecordingError(f"{file} cannot be read: {error}. Record again.") from None
