"""Everything that is fuzzed, by name."""

from fuzzing.targets.attention import ATTENTION
from fuzzing.targets.indexing import INDEXING, SELECTION
from fuzzing.targets.laws import LAWS
from fuzzing.targets.masks import MASKS

TARGETS = {target.name: target for target in (MASKS, INDEXING, SELECTION, ATTENTION, LAWS)}

__all__ = ["TARGETS"]
