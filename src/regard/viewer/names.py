"""What the rows and columns of a map are called: the tokens of the text."""

from __future__ import annotations

from typing import Any

from regard.errors import RecordingError
from regard.models import Recording, Token

__all__ = ["axis_names", "tokens_of"]


def tokens_of(recording: Recording, role: str, count: int) -> dict[str, Any]:
    """The tokens of one side of a model, with their places in the text where these are known.

    Without a tokenizer a token is called by its id, and without ids by its place.
    """
    ids = recording.token_ids.get(role)
    known = [-1] * count if ids is None else ids[0].tolist()
    if role == _told(recording):
        try:
            tokens = recording.tokens
        except RecordingError:
            tokens = []
        if tokens:
            return {
                "text": _text(recording, tokens),
                "ids": [token.id for token in tokens],
                "starts": [token.start for token in tokens],
                "stops": [token.stop for token in tokens],
                "pieces": [token.text for token in tokens],
            }
    pieces = [str(place if i < 0 else i) for place, i in enumerate(known)]
    nowhere = [0] * len(known)
    return {"text": "", "ids": known, "starts": nowhere, "stops": nowhere, "pieces": pieces}


def axis_names(recording: Recording, role: str, queries: int, keys: int) -> tuple[list[str], list[str]]:
    """What to call each query and each key of a stack's maps."""
    sides = {"cross": ("decoder", "encoder")}.get(role, (role, role))
    return _filled(recording, sides[0], queries), _filled(recording, sides[1], keys)


def _filled(recording: Recording, role: str, count: int) -> list[str]:
    """As many names as the map has rows: pictures and sounds have none, and no row goes without."""
    known = tokens_of(recording, role, count)["pieces"][:count]
    return [*known, *(str(place) for place in range(len(known), count))]


def _text(recording: Recording, tokens: list[Token]) -> str:
    """The text that was read, and what the model has added to it."""
    read = recording.text or ""
    return read + "".join(token.text for token in tokens if token.start >= len(read))


def _told(recording: Recording) -> str:
    """Whose tokens a recording has text for."""
    return "decoder" if "decoder" in recording.token_ids else "encoder"
