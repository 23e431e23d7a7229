"""The engine: validate, schedule, stream. `attention` gives the output, `observe` the output and the map."""

from regard.engine.attention import attention, explain_dispatch
from regard.engine.cache import KVCache
from regard.engine.compat import sdpa
from regard.engine.dispatch import Dispatch

__all__ = ["Dispatch", "KVCache", "attention", "explain_dispatch", "sdpa"]
