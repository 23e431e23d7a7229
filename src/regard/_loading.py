"""What `import regard` leaves for later: the module of each public name, and of each extension point."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from regard.extension import set_homes

__all__ = ["EXPORTS", "IMPLEMENTATIONS", "exported"]

# The public names, by the package that has them.
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
    "regard.maps.attention_map.AttentionMap.show": "regard.viewer.methods",
    "regard.masks.base.Mask.__and__": "regard.masks.joins",
    "regard.masks.base.Mask.__invert__": "regard.masks.joins",
    "regard.masks.base.Mask.__or__": "regard.masks.joins",
    "regard.masks.base.Mask.from_blocked": "regard.masks.dense",
    "regard.masks.base.Mask.from_json": "regard.masks.codec",
    "regard.masks.base.Mask.from_mask_mod": "regard.masks.where",
    "regard.masks.base.Mask.pairs": "regard.masks.pairs",
    "regard.masks.base.Mask.to_json": "regard.masks.codec",
    "regard.models.recording.Recording.alone": "regard.models.alone",
    "regard.models.recording.Recording.atlas": "regard.atlas.survey",
    "regard.models.recording.Recording.open": "regard.models.reader",
    "regard.models.recording.Recording.save": "regard.models.writer",
    "regard.models.recording.Recording.show": "regard.viewer.methods",
}
set_homes(IMPLEMENTATIONS)


def exported(name: str) -> Any:
    """The public name or submodule of regard with this name, imported when it is first used."""
    for home, names in EXPORTS.items():
        if name in names:
            found = getattr(import_module(home), name)
            # Stored, so that the next access is a plain attribute access.
            setattr(sys.modules["regard"], name, found)
            return found
    if not name.startswith("_") and find_spec(f"regard.{name}") is not None:
        return import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
