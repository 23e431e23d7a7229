"""Pictures of what a model saw or heard, and where their patches and frames are among a stack's tokens."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from regard.atlas import token_times
from regard.errors import MapError, RecordingError
from regard.models import Recording
from regard.models.pictures import Picture
from regard.viewer.names import sides_of
from regard.viewer.shapes import StackShape

__all__ = ["has_pictures", "said_at", "sights"]

# More tokens than these before the patches are no class token and registers.
LEADING = 16


def has_pictures(recording: Recording, shape: StackShape) -> bool:
    """Whether any keys of a stack are patches or frames of a picture."""
    return any(_place(recording, shape, picture) for picture in recording.pictures)


def sights(recording: Recording, shape: StackShape) -> list[dict[str, Any]]:
    """Each picture among a stack's keys: the first of its keys, and how many rows and columns they make."""
    found: list[dict[str, Any]] = []
    for picture in recording.pictures:
        place = _place(recording, shape, picture)
        if place is not None:
            start, rows, columns = place
            png = b64encode(picture.png).decode()
            sound = picture.name.startswith("sound")
            found.append(
                {"name": picture.name, "kind": "sound" if sound else "image", "png": png,
                 "start": start, "rows": rows, "columns": columns}
            )  # fmt: skip
    return found


def said_at(recording: Recording) -> dict[str, Any]:
    """When each token that the decoder read begins in the sound, in seconds; or why that is not known."""
    try:
        return {"seconds": token_times(recording).tolist(), "why_not": None}
    except (MapError, RecordingError) as error:
        return {"seconds": None, "why_not": str(error)}


def _place(recording: Recording, shape: StackShape, picture: Picture) -> tuple[int, int, int] | None:
    """The first key of a picture and the grid its keys lie on; None where it is not among them."""
    role = sides_of(shape.role)[1]
    passages = next(iter(recording.passages_of(role)), [])
    for passage in passages:
        if passage.name == picture.name and passage.stop <= shape.keys:
            rows = passage.rows or 1
            return passage.start, rows, len(passage.tokens) // rows
    # What only sees has no text, and so no passages: its last tokens are the patches.
    leading = shape.keys - picture.rows * picture.columns
    first = picture == recording.pictures[0] and role in ("vision", "encoder")
    if first and picture.rows and 0 <= leading <= LEADING:
        return leading, picture.rows, picture.columns
    return None
