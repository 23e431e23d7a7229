"""Everything that is fuzzed, by name."""

from fuzzing.targets.indexing import INDEXING, SELECTION
from fuzzing.targets.masks import MASKS

TARGETS = {target.name: target for target in (MASKS, INDEXING, SELECTION)}

__all__ = ["TARGETS"]
