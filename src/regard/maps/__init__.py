"""The lazy exact map, and what `observe` returns."""

from regard.maps.attention_map import AttentionMap
from regard.maps.observation import Observation, observe

__all__ = ["AttentionMap", "Observation", "observe"]
