"""regard: exact attention you can look at, at any length."""

from typing import TYPE_CHECKING

from regard._version import __version__

if TYPE_CHECKING:
    from regard.atlas import importance, knockout, rollout
    from regard.checking import check
    from regard.engine import KVCache, attention, explain_dispatch, sdpa
    from regard.maps import AttentionMap, Observation, observe
    from regard.masks import Causal, Chunk, Dense, Documents, Padding, Where, Window
    from regard.models import Recording, watch
    from regard.stats import ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK
    from regard.tracing import Trace, trace

__all__ = [
    "AttentionMap",
    "Causal",
    "Chunk",
    "ColumnMass",
    "Decay",
    "Dense",
    "Documents",
    "Entropy",
    "KVCache",
    "MaxScore",
    "Observation",
    "Padding",
    "Pooled",
    "Recording",
    "TopK",
    "Trace",
    "Where",
    "Window",
    "__version__",
    "attention",
    "check",
    "explain_dispatch",
    "importance",
    "knockout",
    "observe",
    "rollout",
    "sdpa",
    "trace",
    "watch",
]


def __getattr__(name: str):
    # PyTorch alone takes seconds to load, and `regard --help` needs none of it: all waits for who asks.
    from importlib import import_module
    from importlib.util import find_spec

    homes = {
        "atlas": {"importance", "knockout", "rollout"},
        "checking": {"check"},
        "engine": {"KVCache", "attention", "explain_dispatch", "sdpa"},
        "maps": {"AttentionMap", "Observation", "observe"},
        "masks": {"Causal", "Chunk", "Dense", "Documents", "Padding", "Where", "Window"},
        "models": {"Recording", "watch"},
        "stats": {"ColumnMass", "Decay", "Entropy", "MaxScore", "Pooled", "TopK"},
        "tracing": {"Trace", "trace"},
    }
    for home, names in homes.items():
        if name in names:
            # Found at once the next time.
            globals()[name] = getattr(import_module(f"regard.{home}"), name)
            return globals()[name]
    if not name.startswith("_") and find_spec(f"regard.{name}") is not None:
        return import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
