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

# PyTorch takes seconds to load, and `regard --help` needs none of it: names load when they are first used.
# Type checkers read the imports above, and so report a name that does not exist.
if not TYPE_CHECKING:
    from regard._loading import exported as __getattr__  # noqa: F401


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
