"""What the server answers, as models: its OpenAPI description, and the page's types, are made from these."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

__all__ = [
    "Alignment",
    "AlignmentRun",
    "Atlas",
    "Cell",
    "CheckReport",
    "Column",
    "Curve",
    "Described",
    "Distances",
    "Everywhere",
    "Evidence",
    "EvidencePlace",
    "Farthest",
    "Finder",
    "Info",
    "JobList",
    "JobState",
    "KnockoutResult",
    "Looked",
    "Made",
    "Pending",
    "Questions",
    "Recordings",
    "Region",
    "Returning",
    "Row",
    "Started",
    "Statistics",
    "Steps",
    "Tokens",
    "Worked",
]


class ModelEntry(BaseModel):
    """A model that the server can run."""

    name: str
    bundled: bool


class Info(BaseModel):
    """What the server is, and which models it can run."""

    version: str
    models: list[ModelEntry]
    can_run_models: bool


class RecordingEntry(BaseModel):
    """One line of the list; `error`: why it cannot be opened, where it cannot."""

    id: str
    name: str
    model: str
    tokens: int
    stacks: list[str]
    error: str | None = None


class Recordings(BaseModel):
    """Every recording there is, and the one to open first."""

    recordings: list[RecordingEntry]
    default: str | None


class Stack(BaseModel):
    """Layers with maps of one shape.

    `windows`: how many keys each query of a layer sees, null where it sees all that came before. `documents`:
    the tokens at which a new document starts.
    """

    role: str
    layers: list[int]
    heads: int
    kv_heads: int
    queries: int
    keys: int
    windows: dict[int, int | None]
    documents: list[int]
    causal: bool
    levels: int


class Described(BaseModel):
    """A recording; `live`: its model can be run, for knock-outs and new texts.

    `storing`: whether a reader can keep it or keeps it already; "no" if other machines reach the server.
    """

    id: str
    name: str
    model: str
    kind: str
    tokenizer: str | None
    tokens: int
    complete: bool
    live: bool
    storing: Literal["no", "can", "kept"]
    stacks: list[Stack]
    levels: int
    tile: int


class Tokens(BaseModel):
    """Token ids, and where each stands in the text, in code points."""

    text: str
    ids: list[int]
    starts: list[int]
    stops: list[int]
    pieces: list[str]


class Cell(BaseModel):
    """One pair of a query and a key; `rank` 1 is the heaviest key of the row."""

    query: int
    key: int
    weight: float
    score: float | None
    log_weight: float | None
    rank: int | None
    visible: bool
    distance: int


class KeyWeight(BaseModel):
    key: int
    weight: float


class QueryWeight(BaseModel):
    query: int
    weight: float


class Row(BaseModel):
    """The heaviest keys of a query, and how spread its weights are."""

    query: int
    top: list[KeyWeight]
    entropy: float
    lse: float | None
    mass_shown: float


class Column(BaseModel):
    """The queries that look at a key the most, and all that it receives."""

    key: int
    top: list[QueryWeight]
    mass: float


class Region(BaseModel):
    """Sums over a rectangle of a map; `share` is the mass of one query, on average."""

    cells: int
    visible: int
    mass: float
    share: float
    mean: float
    max: float
    max_at: tuple[int, int] | None
    entropy_mean: float | None


class DecayCurve(BaseModel):
    distance: list[float]
    weight: list[float]


class ProfileCurve(BaseModel):
    position: list[float]
    mass: list[float]


class Curves(BaseModel):
    decay: DecayCurve | None = None
    profile: ProfileCurve | None = None


class Statistics(BaseModel):
    """Of one head: values by row, curves by distance and position, single numbers."""

    names: list[str]
    rows: dict[str, list[float | None]]
    curves: Curves
    numbers: dict[str, float | None]


class TokenProbability(BaseModel):
    """A token that may come next."""

    token: str
    id: int
    probability: float


class Part(BaseModel):
    """A table of numbers with names along both sides; `shape` is that of all there is.

    `worked`: how each number follows from the step before; empty where that is not written out.
    """

    name: str
    shape: list[int]
    rows: list[str]
    columns: list[str]
    data: list[list[float | None]]
    worked: list[list[str]]


class Step(BaseModel):
    """One step of the arithmetic, with its tables."""

    name: str
    title: str
    formula: str
    sentence: str
    parts: list[Part]


class Steps(BaseModel):
    """One query walked through; a worked example has neither a layer nor a group of heads."""

    query: int
    token: str
    layer: int | None = None
    head: int
    keys: list[int]
    tokens: list[str]
    visible: int
    more: int
    dim: int
    group: int | None = None
    scale: float
    temperature: float
    scaled: bool
    entropy: float | None
    steps: list[Step]
    next: list[TokenProbability]


class Worked(BaseModel):
    """The names of the worked examples."""

    names: list[str]


class Finding(BaseModel):
    """How well a kind describes a head, from 0 to 1; found from `bar` on. Null: it makes no sense there."""

    kind: str
    score: float | None
    bar: float
    evidence: str
    weight: float | None
    chance: float | None
    queries: int | None


class AtlasHead(BaseModel):
    """Some statistics are words: why there is no number, or which curve fits better."""

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
    """It is being made by this job."""

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
    """How far every head's rows are apart, on so many of the `shared` queries; layers × heads."""

    layers: list[int]
    heads: int
    distance: list[list[float]]
    queries: int
    shared: int


class Chance(BaseModel):
    """How likely a token is; null where the model's numbers are none."""

    token: str
    id: int
    probability: float | None


class KnockoutResult(BaseModel):
    """What comes next before and after a cut, the divergence between the two, and what the loss becomes.

    `tokens`: how many tokens the model read; of a long text those up to `at`.
    """

    at: int
    tokens: int
    kl: float | None
    before: list[Chance]
    after: list[Chance]
    loss_change: float | None


Verdict = Literal["given", "right", "rounded", "inherited", "wrong"]


class CheckedCell(BaseModel):
    printed: str
    verdict: Verdict
    right: str
    cause: str


class CheckedStep(BaseModel):
    name: str
    formula: str
    verdict: Verdict
    rows: list[str]
    columns: list[str]
    cells: list[list[CheckedCell]]
    causes: list[str]


class CheckedExample(BaseModel):
    name: str
    checked: int
    wrong: int
    notes: list[str]
    steps: list[CheckedStep]


class CheckReport(BaseModel):
    """Whether printed numbers follow from each other, example by example."""

    ok: bool
    examples: list[CheckedExample]


class JobResult(BaseModel):
    """What a job has made: a recording, the overviews of so many heads, or the answer to a cut."""

    recording: str | None = None
    heads: int | None = None
    knockout: KnockoutResult | None = None


class Attended(BaseModel):
    key: int
    token: str
    weight: float


class JobState(BaseModel):
    """How far a job is; while a text grows also the new token, what else it might be, and what it saw."""

    id: str
    kind: str
    title: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: int
    total: int
    seconds_left: float | None
    result: JobResult | None
    error: str | None
    token: str | None = None
    top: list[TokenProbability] | None = None
    attended: list[Attended] | None = None


class Made(BaseModel):
    """The id of a recording that something was done with."""

    recording: str


class JobList(BaseModel):
    """The jobs that have not ended."""

    jobs: list[JobState]


class Started(BaseModel):
    """The id of a job; all else is asked with it."""

    id: str


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
    """What speaks for a kind in one head: `queries` see such a key, `hits` have no heavier one."""

    kind: str
    looks_for: str
    queries: int
    hits: int
    mean: float
    step: int
    """Every so many queries one was looked at: 1 is all."""
    along: Curve
    places: list[EvidencePlace]


class Finder(BaseModel):
    """A head, and how much of a row it has on what was asked for."""

    layer: int
    head: int
    weight: float


class Returning(BaseModel):
    """A word that comes back at `query` after `gap` tokens; `finders` look at earlier mentions.

    `key` is the token of these with the most weight in the first finder.
    """

    word: str
    mentions: int
    query: int
    key: int
    gap: int
    finders: list[Finder]


class Farthest(BaseModel):
    """The longest way from a word to the word that it looks at most."""

    layer: int
    head: int
    query: int
    key: int
    weight: float
    distance: int


class Questions(BaseModel):
    """What a visitor may ask of a text, with the answers; null where the recording has none."""

    returning: Returning | None
    farthest: Farthest | None


class Looked(BaseModel):
    """A token, and its mean weight over all heads."""

    position: int
    weight: float


class Everywhere(BaseModel):
    """One query in every head of a stack, or one key; lists are layers × heads.

    Of a query: `top` is the heaviest key, `entropy` in nats. Of a key: `top` is the query that gives it most,
    `mass` all that it receives. `weight` is there where both were named.
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
