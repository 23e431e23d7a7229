"""Jobs, what they make, and what a cut changes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from regard.viewer.answers.maps import TokenProbability

__all__ = [
    "JobList",
    "JobState",
    "KnockoutResult",
    "Made",
    "Started",
]


class Chance(BaseModel):
    """How likely a token is; null if the model returned NaN."""

    token: str
    id: int
    probability: float | None


class KnockoutResult(BaseModel):
    """The next token before and after a cut, the divergence between the two, and the change of the loss.

    `tokens`: how many tokens the model read; of a long text those up to `at`.
    """

    at: int
    tokens: int
    kl: float | None
    before: list[Chance]
    after: list[Chance]
    loss_change: float | None


class JobResult(BaseModel):
    """What a job made: a recording, overviews of some heads, or the effect of a cut."""

    recording: str | None = None
    heads: int | None = None
    knockout: KnockoutResult | None = None


class Attended(BaseModel):
    key: int
    token: str
    weight: float


class JobState(BaseModel):
    """The progress of a job; while a text is generated also the new token, its alternatives, and what it
    attended to.

    `seconds`: how long it has waited, or since it began how long it has run. `abandoned`: it was cancelled
    because the last page that followed its progress went away.
    """

    id: str
    kind: str
    title: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: int
    total: int
    seconds: float
    seconds_left: float | None
    result: JobResult | None
    error: str | None
    abandoned: bool
    token: str | None = None
    top: list[TokenProbability] | None = None
    attended: list[Attended] | None = None


class Made(BaseModel):
    """The id of the recording concerned."""

    recording: str


class JobList(BaseModel):
    """The jobs that have not ended."""

    jobs: list[JobState]


class Started(BaseModel):
    """The id of a job, with which it is followed and ended."""

    id: str
