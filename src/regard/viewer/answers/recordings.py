"""The server, its models and recordings, and their tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from regard.viewer.shapes import StackShape

__all__ = [
    "Described",
    "Info",
    "Recordings",
    "Tokens",
    "Worked",
]


class ModelEntry(BaseModel):
    """A model that the server can run."""

    name: str
    bundled: bool


class Info(BaseModel):
    """The server's version and limits, and the models it can run."""

    version: str
    models: list[ModelEntry]
    can_run_models: bool


class RecordingEntry(BaseModel):
    """One line of the list; `error` says why it cannot be opened, if so."""

    id: str
    name: str
    model: str
    tokens: int
    stacks: list[str]
    error: str | None = None


class Recordings(BaseModel):
    """All recordings, and the one to open first."""

    recordings: list[RecordingEntry]
    default: str | None


class Described(BaseModel):
    """A recording; `live` if its model can be run, for knock-outs and new texts.

    `pictures`: the stacks among whose keys are patches of an image or frames of a sound.
    `storing`: whether a reader can keep it, or keeps it already; "no" if other machines can reach the server.
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
    stacks: list[StackShape]
    pictures: list[str]
    levels: int
    tile: int


class Tokens(BaseModel):
    """Token ids, and where each stands in the text, in code points."""

    text: str
    ids: list[int]
    starts: list[int]
    stops: list[int]
    pieces: list[str]


class Worked(BaseModel):
    """The names of the worked examples."""

    names: list[str]
