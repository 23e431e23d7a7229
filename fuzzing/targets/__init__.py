"""Everything that is fuzzed, by name."""

from fuzzing.targets.attention import ATTENTION, HALF
from fuzzing.targets.cache import CACHE
from fuzzing.targets.files import GGUF, OBSERVATIONS, RECORDED
from fuzzing.targets.indexing import INDEXING, SELECTION
from fuzzing.targets.laws import LAWS
from fuzzing.targets.masks import MASKS
from fuzzing.targets.recordings import RECORDINGS
from fuzzing.targets.server import SERVER
from fuzzing.targets.statistics import STATISTICS, TREES

TARGETS = {
    target.name: target
    for target in (
        *(MASKS, INDEXING, SELECTION, ATTENTION, HALF, LAWS, STATISTICS, TREES, CACHE),
        *(RECORDINGS, RECORDED, OBSERVATIONS, GGUF, SERVER),
    )
}

__all__ = ["TARGETS"]
