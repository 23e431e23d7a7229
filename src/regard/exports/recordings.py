"""Recordings, atlases and knock-outs as arrays and tables."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from regard.atlas import Knockout
from regard.cards import Atlas
from regard.errors import RecordingError
from regard.exports.columns import (
    Columns,
    arrays_of,
    arrow_table,
    data_frame,
    needed,
    new_place,
    row_columns,
    write_parquet,
    write_safetensors,
)
from regard.exports.tensors import CHUNK, write_map
from regard.extension import implements
from regard.models import Layer, Recording

__all__: list[str] = []


@implements(Recording.to_numpy)
def _recording_to_numpy(self: Recording) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {f"{role}.tokens": ids.numpy() for role, ids in self.token_ids.items()}
    for layer in self.all_layers:
        for name, value in {"lse": layer.lse, **layer.stats}.items():
            found |= arrays_of(f"{layer.role}.{layer.index}.{name}", value)
    return found


@implements(Recording.to_pandas)
def _recording_to_pandas(self: Recording) -> Any:
    return data_frame(_rows(self))


@implements(Recording.to_arrow)
def _recording_to_arrow(self: Recording) -> Any:
    return arrow_table(_rows(self))


@implements(Recording.to_parquet)
def _recording_to_parquet(self: Recording, path: str | Path) -> None:
    write_parquet(_rows(self), path)


@implements(Recording.to_safetensors)
def _recording_to_safetensors(self: Recording, path: str | Path) -> None:
    write_safetensors(self.to_numpy(), path, {"model": self.model.name, "kind": self.model.kind})


@implements(Recording.to_zarr)
def _recording_to_zarr(self: Recording, path: str | Path, *, chunk: int = CHUNK) -> None:
    zarr = needed("zarr", "zarr", "a Zarr group")
    group = zarr.create_group(new_place(path))
    group.attrs.update({"model": self.model.name, "kind": self.model.kind, "text": self.text})
    for role, ids in self.token_ids.items():
        group.create_array(f"tokens/{role}", data=ids.numpy())
    for layer in self.all_layers:
        name = f"{layer.role}/{layer.index}"
        write_map(layer.map, partial(group.create_array, f"{name}/map"), chunk, layer.mask_text)
        for statistic, value in {"lse": layer.lse, **layer.stats}.items():
            for key, x in arrays_of(statistic, value).items():
                group.create_array(f"{name}/{key}", data=x)


@implements(Recording.to_attentions)
def _recording_to_attentions(self: Recording, stack: str | None = None) -> tuple[Tensor, ...]:
    layers = self.layers if stack is None else self.stack(stack)
    if not layers:
        raise RecordingError(f"the recording has no {stack}; its stacks are: {', '.join(self.stacks)}.")
    return tuple(layer.map.dense() for layer in layers.values())


@implements(Atlas.to_pandas)
def _atlas_to_pandas(self: Atlas) -> Any:
    return data_frame(_columns(self.rows()))


@implements(Atlas.to_arrow)
def _atlas_to_arrow(self: Atlas) -> Any:
    return arrow_table(_columns(self.rows()))


@implements(Knockout.to_pandas)
def _knockout_to_pandas(self: Knockout) -> Any:
    return data_frame(_columns(self.rows()))


@implements(Knockout.to_arrow)
def _knockout_to_arrow(self: Knockout) -> Any:
    return arrow_table(_columns(self.rows()))


def _columns(rows: list[dict[str, Any]]) -> Columns:
    names = list(rows[0]) if rows else []
    return {name: [row[name] for row in rows] for name in names}


def _rows(self: Recording) -> Columns:
    """One row per layer, batch row, head and query; NaN where a layer lacks a statistic."""
    parts = [_layer_rows(self, layer) for layer in self.all_layers]
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.concatenate([part.get(name, np.full(len(part["query"]), np.nan)) for part in parts])
        for name in names
    }


def _layer_rows(self: Recording, layer: Layer) -> Columns:
    batch, heads, queries = layer.lse.shape
    columns = row_columns((batch, heads, queries), {"lse": layer.lse, **layer.stats})
    rows = len(columns["query"])
    tokens = _tokens(self, layer.role, (batch, queries))
    named = {} if tokens is None else {"token": tokens[columns["batch"], columns["query"]]}
    return {
        "stack": np.full(rows, layer.role, object),
        "layer": np.full(rows, layer.index),
        **columns,
        **named,
    }


def _tokens(self: Recording, role: str, shape: tuple[int, int]) -> np.ndarray | None:
    """The text of each query's token, (batch, q); None where it is not known."""
    side = "decoder" if role in ("decoder", "cross", "predicting") else "encoder"
    try:
        rows = [[token.text for token in row[: shape[1]]] for row in self.tokens_of(side)]
    except RecordingError:
        return None
    if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
        return None
    return np.array(rows, object)
