"""Lazy imports: the module of each public name, and of each extension point."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from regard.extension import set_homes

__all__ = ["EXPORTS", "IMPLEMENTATIONS", "exported", "uncollected"]

# The public names by package.
EXPORTS = {
    "regard.atlas": ("importance", "knockout", "rollout"),
    "regard.checking": ("check",),
    "regard.engine": ("KVCache", "attention", "explain_dispatch", "sdpa"),
    "regard.maps": ("AttentionMap", "Observation", "observe"),
    "regard.masks": ("Causal", "Chunk", "Dense", "Documents", "Padding", "Prefix", "Where", "Window"),
    "regard.models": ("Recording", "load", "record", "watch"),
    "regard.stats": ("ColumnMass", "Decay", "Entropy", "MaxScore", "Pooled", "TopK"),
    "regard.tracing": ("Trace", "trace"),
}

# The module that implements each method declared with `@extension_point`.
IMPLEMENTATIONS = {
    "regard.atlas.knockout.Knockout._repr_html_": "regard.display.models",
    "regard.atlas.knockout.Knockout.to_arrow": "regard.exports.recordings",
    "regard.atlas.knockout.Knockout.to_pandas": "regard.exports.recordings",
    "regard.cards.atlas.Atlas._repr_html_": "regard.display.models",
    "regard.cards.atlas.Atlas.to_arrow": "regard.exports.recordings",
    "regard.cards.atlas.Atlas.to_pandas": "regard.exports.recordings",
    "regard.maps.attention_map.AttentionMap._repr_html_": "regard.display.tensors",
    "regard.maps.attention_map.AttentionMap.show": "regard.viewer.methods",
    "regard.maps.attention_map.AttentionMap.to_numpy": "regard.exports.tensors",
    "regard.maps.attention_map.AttentionMap.to_zarr": "regard.exports.tensors",
    "regard.maps.observation.Observation._repr_html_": "regard.display.tensors",
    "regard.maps.observation.Observation.to_arrow": "regard.exports.tensors",
    "regard.maps.observation.Observation.to_numpy": "regard.exports.tensors",
    "regard.maps.observation.Observation.to_pandas": "regard.exports.tensors",
    "regard.maps.observation.Observation.to_parquet": "regard.exports.tensors",
    "regard.masks.base.Mask.__and__": "regard.masks.joins",
    "regard.masks.base.Mask.__invert__": "regard.masks.joins",
    "regard.masks.base.Mask.__or__": "regard.masks.joins",
    "regard.masks.base.Mask._repr_html_": "regard.display.tensors",
    "regard.masks.base.Mask.from_blocked": "regard.masks.dense",
    "regard.masks.base.Mask.from_json": "regard.masks.codec",
    "regard.masks.base.Mask.from_mask_mod": "regard.masks.where",
    "regard.masks.base.Mask.pairs": "regard.masks.pairs",
    "regard.masks.base.Mask.to_json": "regard.masks.codec",
    "regard.models.recording.Recording._repr_html_": "regard.display.models",
    "regard.models.recording.Recording.alone": "regard.models.alone",
    "regard.models.recording.Recording.atlas": "regard.atlas.survey",
    "regard.models.recording.Recording.open": "regard.models.reader",
    "regard.models.recording.Recording.plot_image": "regard.models.images",
    "regard.models.recording.Recording.save": "regard.models.writer",
    "regard.models.recording.Recording.show": "regard.viewer.methods",
    "regard.models.recording.Recording.to_arrow": "regard.exports.recordings",
    "regard.models.recording.Recording.to_attentions": "regard.exports.recordings",
    "regard.models.recording.Recording.to_numpy": "regard.exports.recordings",
    "regard.models.recording.Recording.to_pandas": "regard.exports.recordings",
    "regard.models.recording.Recording.to_parquet": "regard.exports.recordings",
    "regard.models.recording.Recording.to_safetensors": "regard.exports.recordings",
    "regard.models.recording.Recording.to_zarr": "regard.exports.recordings",
}
set_homes(IMPLEMENTATIONS)


def exported(name: str) -> Any:
    """The public name or submodule of regard with this name, imported on first use."""
    for home, names in EXPORTS.items():
        if name in names:
            with uncollected():
                found = getattr(import_module(home), name)
            # Store it, so that the next access is a plain attribute access.
            setattr(sys.modules["regard"], name, found)
            return found
    if not name.startswith("_") and find_spec(f"regard.{name}") is not None:
        with uncollected():
            return import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector during imports: it would walk half a million objects and free none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
