"""regard: exact attention you can look at, at any length."""

from typing import TYPE_CHECKING

from regard._version import __version__
from regard.engine import KVCache, attention, explain_dispatch, sdpa
from regard.maps import AttentionMap, Observation, observe
from regard.masks import Causal, Chunk, Dense, Documents, Padding, Where, Window
from regard.stats import ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK
from regard.tracing import Trace, trace

if TYPE_CHECKING:
    from regard.atlas import importance, knockout, rollout
    from regard.models import Recording, watch

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
    # Watching and surveying models cost imports of their own, so they wait for the first who asks.
    if name in ("Recording", "watch"):
        import regard.models

        return getattr(regard.models, name)
    if name in ("atlas", "importance", "knockout", "rollout"):
        import regard.atlas

        return regard.atlas if name == "atlas" else getattr(regard.atlas, name)
    if name == "claims":
        import regard.claims

        return regard.claims
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
