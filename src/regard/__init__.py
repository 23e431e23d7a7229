"""regard: exact attention you can look at, at any length."""

from typing import TYPE_CHECKING

from regard._version import __version__

if TYPE_CHECKING:
    # isort: off
    from regard import (
        atlas as atlas,
        cards as cards,
        checking as checking,
        claims as claims,
        cost as cost,
        doctor as doctor,
        engine as engine,
        errors as errors,
        eviction as eviction,
        exercises as exercises,
        maps as maps,
        masks as masks,
        models as models,
        nn as nn,
        plots as plots,
        scores as scores,
        stats as stats,
        tracing as tracing,
    )

    # isort: on
    # A function is imported from its module: mypy would take `regard.engine.attention` for the module.
    from regard.atlas.importance import importance
    from regard.atlas.knockout import knockout
    from regard.atlas.rollout import rollout
    from regard.checking.check import check
    from regard.engine import KVCache, sdpa
    from regard.engine.attention import attention, explain_dispatch
    from regard.maps import AttentionMap, Observation, observe
    from regard.masks import Causal, Chunk, Dense, Documents, Padding, Prefix, Where, Window
    from regard.models import Recording, load
    from regard.models.record import record
    from regard.models.watch import watch
    from regard.stats import ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK
    from regard.tracing import Trace
    from regard.tracing.trace import trace

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
    "Prefix",
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
    "load",
    "observe",
    "record",
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
