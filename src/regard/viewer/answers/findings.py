"""Results about heads and tokens, of one recording or of two."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = [
    "Alignment",
    "AlignmentRun",
    "Atlas",
    "Curve",
    "Distances",
    "Everywhere",
    "Evidence",
    "EvidencePlace",
    "Farthest",
    "Finder",
    "Looked",
    "Pending",
    "Questions",
    "Returning",
]


class Finding(BaseModel):
    """How well a kind describes a head, from 0 to 1; found from `bar` on. Null if the kind makes no sense
    there."""

    kind: str
    score: float | None
    bar: float
    evidence: str
    weight: float | None
    chance: float | None
    queries: int | None


class AtlasHead(BaseModel):
    """Some statistics are text: why there is no number, or which curve fits better."""

    role: str
    layer: int
    head: int
    kinds: dict[str, float]
    findings: dict[str, Finding]
    statistics: dict[str, float | str]


class Atlas(BaseModel):
    """Every head, and which kinds and statistics they have."""

    heads: list[AtlasHead]
    kinds: list[str]
    statistics: list[str]


class Pending(BaseModel):
    """The job that is computing it."""

    job: str


class AlignmentRun(BaseModel):
    """Equal tokens of two texts: where the run begins in each, and its length."""

    first: int
    second: int
    length: int


class Alignment(BaseModel):
    """Which tokens two texts have in common, on either side of a stack."""

    queries: list[AlignmentRun]
    keys: list[AlignmentRun]


class Distances(BaseModel):
    """How far every head's rows differ, over this many of the `shared` queries; layers × heads."""

    layers: list[int]
    heads: int
    distance: list[list[float]]
    queries: int
    shared: int


class EvidencePlace(BaseModel):
    """A cell of a kind's keys; `source`: an earlier place of the query's token, where that matters."""

    query: int
    key: int
    weight: float
    source: int | None


class Curve(BaseModel):
    """Along the text, in bins of queries: the mean weight on a kind's keys, and the share of hits."""

    position: list[float]
    weight: list[float]
    hits: list[float]


class Evidence(BaseModel):
    """The evidence for a kind in one head: `queries` see such a key; in `hits` of them it is the heaviest."""

    kind: str
    looks_for: str
    queries: int
    hits: int
    mean: float
    step: int
    """Every so many queries one was looked at: 1 is all."""
    along: Curve
    places: list[EvidencePlace]


class Looked(BaseModel):
    """A token, and its mean weight over all heads."""

    position: int
    weight: float


class Everywhere(BaseModel):
    """One query in every head of a stack, or one key; lists are layers × heads.

    For a query, `top` is the heaviest key and `entropy` is in nats. For a key, `top` is the query that gives
    it most and `mass` is all that it receives. `weight` is set if both were given.
    """

    query: int | None
    key: int | None
    layers: list[int]
    heads: int
    top: list[list[int]]
    top_weight: list[list[float]]
    entropy: list[list[float]] | None
    mass: list[list[float]] | None
    weight: list[list[float]] | None
    others: list[Looked]
    """The tokens of the other side that get or give most, over all heads."""


class Finder(BaseModel):
    """A head, and the share of a row that it puts on the tokens in question."""

    layer: int
    head: int
    weight: float


class Returning(BaseModel):
    """A word that comes back at `query` after `gap` tokens; `finders` attend to earlier mentions.

    `key` is the token of these with the most weight in the first finder.
    """

    word: str
    mentions: int
    query: int
    key: int
    gap: int
    finders: list[Finder]


class Farthest(BaseModel):
    """The longest distance from a word to the word that it attends to most."""

    layer: int
    head: int
    query: int
    key: int
    weight: float
    distance: int


class Questions(BaseModel):
    """Questions about a text with their answers; null if the recording has none."""

    returning: Returning | None
    farthest: Farthest | None
