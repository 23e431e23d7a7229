"""What a model saw or heard, as pictures, and when words were said."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

__all__ = ["Said", "Sight", "Sights"]


class Sight(BaseModel):
    """A PNG in base64; its patches or frames are `rows` × `columns` keys of the stack from `start` on."""

    name: str
    kind: Literal["image", "sound"]
    png: str
    start: int
    rows: int
    columns: int


class Sights(BaseModel):
    """The pictures among a stack's keys."""

    pictures: list[Sight]


class Said(BaseModel):
    """When each token that the decoder read begins in the sound, in seconds; null and why not."""

    seconds: list[float] | None
    why_not: str | None
