"""One head over a whole corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.corpus.intervals import Mean, Share
from regard.corpus.state import KIND_NAMES, MEASURES, State
from regard.errors import CorpusError

__all__ = ["CorpusHead", "heads_of"]

# A head has a kind if it is of that kind in most documents: the whole interval lies above a half.
MOST = 0.5


@dataclass(frozen=True)
class CorpusHead:
    """The statistics of one head over the documents of a corpus.

    `kinds` is, for every kind, the share of documents in which the head is of that kind, among the documents
    for which the kind is defined; `scores` is the mean score of each kind. `entropy` counts queries by their
    entropy relative to its maximum; `distance` counts documents by the octave of the head's mean distance;
    `decay` is the mean weight of a pair by the octave of its distance, None without pairs. `profiles` is, by
    octave of the document's length, the weight of the last queries on each tenth of the document. `top` are
    the documents with the head's strongest cells.
    """

    stack: str
    layer: int
    head: int
    kinds: dict[str, Share]
    scores: dict[str, float | None]
    measures: dict[str, Mean]
    entropy: list[int]
    distance: list[int]
    decay: list[float | None]
    profiles: dict[int, list[float]]
    top: list[dict[str, Any]]

    @property
    def kind(self) -> str | None:
        """The kind with the largest share among those that it has in most documents; None if there is
        none."""
        found = [(share.value or 0, name) for name, share in self.kinds.items() if share.low > MOST]
        return max(found)[1] if found else None

    def share(self, kind: str) -> Share:
        """The share of documents in which it is of a kind."""
        if kind not in self.kinds:
            raise CorpusError(f"there is no kind {kind!r}; kinds are: {', '.join(self.kinds)}.")
        return self.kinds[kind]

    def to_dict(self) -> dict[str, Any]:
        """The head as plain data."""
        return {
            "stack": self.stack,
            "layer": self.layer,
            "head": self.head,
            "kind": self.kind,
            "kinds": {
                name: share.to_dict() | {"mean_score": self.scores[name]}
                for name, share in self.kinds.items()
            },
            "measures": {name: mean.to_dict() for name, mean in self.measures.items()},
            "entropy_histogram": self.entropy,
            "distance_histogram": self.distance,
            "decay": self.decay,
            "profiles": {str(octave): values for octave, values in self.profiles.items()},
            "top": self.top,
        }

    def __repr__(self) -> str:
        name = self.kind
        said = "no kind" if name is None else f"{name} in {self.kinds[name].value:.0%}"
        return f"CorpusHead({self.stack} {self.layer}.{self.head}: {said})"


def heads_of(state: State, names: list[tuple[str, int, int]]) -> tuple[CorpusHead, ...]:
    """The heads, from the sums over a corpus."""
    plain = {name: value.tolist() for name, value in state.sums.items()}
    return tuple(_head(plain, state.strongest[place], place, name) for place, name in enumerate(names))


def _head(
    sums: dict[str, Any], top: list[dict[str, Any]], place: int, name: tuple[str, int, int]
) -> CorpusHead:
    fit = [row[place] for row in sums["kind_fit"]]
    found = [row[place] for row in sums["kind_found"]]
    scores = [row[place] for row in sums["kind_sum"]]
    rows = zip(sums["measure_count"], sums["measure_sum"], sums["measure_squares"], strict=True)
    means = [Mean.of(n[place], total[place], squares[place]) for n, total, squares in rows]
    pairs = zip(sums["decay_sum"][place], sums["decay_count"][place], strict=True)
    return CorpusHead(
        *name,
        kinds={k: Share(f, n) for k, f, n in zip(KIND_NAMES, found, fit, strict=True)},
        scores={k: s / n if n else None for k, s, n in zip(KIND_NAMES, scores, fit, strict=True)},
        measures=dict(zip(MEASURES, means, strict=True)),
        entropy=sums["entropy_histogram"][place],
        distance=_trimmed(sums["distance_histogram"][place]),
        decay=_trimmed([total / count if count else None for total, count in pairs]),
        profiles={
            octave: [value / count for value in sums["profile_sum"][octave][place]]
            for octave, count in enumerate(sums["lengths"])
            if count
        },
        top=top,
    )


def _trimmed(values: list[Any]) -> list[Any]:
    """The values without trailing zeros."""
    last = max((place for place, value in enumerate(values) if value), default=-1)
    return values[: last + 1]
