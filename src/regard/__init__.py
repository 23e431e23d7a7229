"""regard: exact attention you can look at, at any length."""

from regard._version import __version__
from regard.engine import KVCache, attention, explain_dispatch, sdpa
from regard.maps import AttentionMap, Observation, observe
from regard.masks import Causal, Chunk, Dense, Documents, Padding, Where, Window
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
    "TopK",
    "Trace",
    "Where",
    "Window",
    "__version__",
    "attention",
    "explain_dispatch",
    "observe",
    "sdpa",
    "trace",
]
