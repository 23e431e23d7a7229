"""Masks: which pairs may attend. They combine with `& | ~`, and know which tiles need no work."""

from regard.masks.base import Coverage, Mask
from regard.masks.causal import Causal
from regard.masks.chunk import Chunk
from regard.masks.dense import Dense
from regard.masks.documents import Documents
from regard.masks.global_tokens import Global
from regard.masks.joins import And, Not, Or
from regard.masks.padding import Padding
from regard.masks.prefix import Prefix
from regard.masks.random_blocks import RandomBlocks
from regard.masks.recipes import BigBird, Longformer, StreamingSinks
from regard.masks.strided import Strided
from regard.masks.where import Where
from regard.masks.window import Window

__all__ = [
    "And",
    "BigBird",
    "Causal",
    "Chunk",
    "Coverage",
    "Dense",
    "Documents",
    "Global",
    "Longformer",
    "Mask",
    "Not",
    "Or",
    "Padding",
    "Prefix",
    "RandomBlocks",
    "StreamingSinks",
    "Strided",
    "Where",
    "Window",
]
