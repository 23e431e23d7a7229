"""regard: exact attention you can look at, at any length."""

from regard._version import __version__
from regard.engine import KVCache, attention, explain_dispatch, sdpa
from regard.masks import Causal, Chunk, Dense, Documents, Padding, Prefix, Where, Window

__all__ = [
    "Causal",
    "Chunk",
    "Dense",
    "Documents",
    "KVCache",
    "Padding",
    "Prefix",
    "Where",
    "Window",
    "__version__",
    "attention",
    "explain_dispatch",
    "sdpa",
]
