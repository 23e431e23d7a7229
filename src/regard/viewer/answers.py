"""What the server answers, as models: its OpenAPI description, and the page's types, are made from these."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = ["Everywhere", "Evidence", "EvidencePlace", "Looked"]


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
    """What speaks for a kind in one head: `queries` see such a key, `hits` of them have no heavier one."""

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
