"""`State`: the sums of a corpus run, and how to merge two of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from regard.atlas.kinds import OF_ONE_TEXT

__all__ = [
    "BINS",
    "ENTROPY_BINS",
    "KIND_NAMES",
    "LENGTHS",
    "MEASURES",
    "OCTAVES",
    "PROFILE_BINS",
    "TOPS",
    "State",
    "best",
    "plain",
]

# The measures averaged over documents, besides the score of every kind.
MEASURES = (
    "entropy",
    "relative_entropy",
    "mean_distance",
    "sink_share",
    "delimiter_share",
    "top_weight",
    "span_induction",
    "span_copy",
    "importance",
)
KIND_NAMES = tuple(kind.name for kind in OF_ONE_TEXT)
ENTROPY_BINS = 20
# Distances by octave: bin 0 is distance 0, bin b is 2^(b-1) … 2^b - 1.
OCTAVES = 32
# Documents by length, in octaves: bin b is 2^b … 2^(b+1) - 1 tokens.
LENGTHS = 32
PROFILE_BINS = 10
# The number of strongest texts to keep per head.
TOPS = 16
BINS = {"entropy": ENTROPY_BINS, "decay": OCTAVES, "lengths": LENGTHS, "profile": PROFILE_BINS}


@dataclass
class State:
    """Sums over documents, head by head: counts are whole numbers, other sums float64.

    `strongest` holds, for each head, the documents with its strongest cells, best first. Merging two states
    adds sums and merges these lists, so documents can be divided among states in any way.
    """

    sums: dict[str, Tensor]
    strongest: list[list[dict[str, Any]]]
    failed: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def empty(cls, heads: int) -> State:
        """The state of no document.

        >>> int(State.empty(4).sums["documents"])
        0
        """
        whole = {
            "documents": (1,),
            "tokens": (1,),
            "windows": (1,),
            "lengths": (LENGTHS,),
            "kind_fit": (len(KIND_NAMES), heads),
            "kind_found": (len(KIND_NAMES), heads),
            "measure_count": (len(MEASURES), heads),
            "entropy_histogram": (heads, ENTROPY_BINS),
            "distance_histogram": (heads, OCTAVES),
            "decay_count": (heads, OCTAVES),
        }
        broken = {
            "kind_sum": (len(KIND_NAMES), heads),
            "measure_sum": (len(MEASURES), heads),
            "measure_squares": (len(MEASURES), heads),
            "decay_sum": (heads, OCTAVES),
            "profile_sum": (LENGTHS, heads, PROFILE_BINS),
        }
        sums = {name: torch.zeros(shape, dtype=torch.int64) for name, shape in whole.items()}
        sums |= {name: torch.zeros(shape, dtype=torch.float64) for name, shape in broken.items()}
        return cls(sums, [[] for _ in range(heads)])

    @property
    def documents(self) -> int:
        """How many documents were read."""
        return int(self.sums["documents"])

    def merge(self, other: State) -> State:
        """The sum of both states, as a new one."""
        sums = {name: value + other.sums[name] for name, value in self.sums.items()}
        strongest = [best([*a, *b]) for a, b in zip(self.strongest, other.strongest, strict=True)]
        return State(sums, strongest, [*self.failed, *other.failed])

    def to_bytes(self) -> tuple[bytes, dict[str, Any]]:
        """The sums as a safetensors file, and the rest as plain data."""
        return save(dict(self.sums)), {"tops": self.strongest, "failed": self.failed}

    @classmethod
    def from_bytes(cls, sums: bytes, about: dict[str, Any]) -> State:
        """The inverse of `to_bytes`."""
        return cls(load(sums), about["tops"], about["failed"])


def best(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first TOPS of some documents by strength, each document once; ties go to the earlier one."""
    found: dict[int, dict[str, Any]] = {}
    for entry in sorted(entries, key=lambda e: (-e["strength"], e["document"], e["start"])):
        found.setdefault(entry["document"], entry)
    return list(found.values())[:TOPS]


def plain(value: Any) -> bytes:
    """Plain data as JSON with deterministic bytes."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=1).encode()
