"""The names of a map's rows and columns: the tokens of the text."""

from __future__ import annotations

from typing import Any

from regard.errors import RecordingError
from regard.models import Recording, Token

__all__ = ["SIDES", "axis_names", "sides_of", "tokens_of"]

SIDES = ("queries", "keys")
# Shown for a token whose characters are shown with an earlier token.
REST = "⋯"
# Stacks whose queries are not those of its keys.
SIDES_OF = {
    "cross": ("decoder", "encoder"), "pooling": ("probe", "pooling"), "predicting": ("decoder", "decoder"),
}  # fmt: skip


def sides_of(role: str) -> tuple[str, str]:
    """The sides whose tokens are the queries and the keys of a stack.

    >>> sides_of("cross"), sides_of("decoder")
    (('decoder', 'encoder'), ('decoder', 'decoder'))
    """
    return SIDES_OF.get(role, (role, role))


def tokens_of(recording: Recording, role: str, count: int) -> dict[str, Any]:
    """The tokens of one side of a model, with their spans in the text, if known.

    Without a tokenizer a token's name is its id, and without ids its index.
    """
    if role == "probe":
        return {"text": "", "ids": [-1] * count, "starts": [0] * count, "stops": [0] * count,
                "pieces": ["[POOL]"] * count}  # fmt: skip
    if role == "pooling":
        role = "vision" if "vision" in recording.stacks else "encoder"
    # A model without a decoder has one list of ids, stored under "decoder".
    alone = role == "encoder" and "encoder" not in recording.token_ids and "cross" not in recording.stacks
    role = "decoder" if alone else role
    ids = recording.token_ids.get(role)
    known = [-1] * count if ids is None else ids[0].tolist()
    try:
        tokens = recording.tokens_of(role)[0]
    except RecordingError:
        tokens = []
    if tokens:
        text = _text(recording, role, tokens)
        tokens = _once(tokens)
        return {
            "text": text,
            "ids": [token.id for token in tokens],
            "starts": [token.start for token in tokens],
            "stops": [token.stop for token in tokens],
            "pieces": [token.text for token in tokens],
        }
    pieces = [str(place if i < 0 else i) for place, i in enumerate(known)]
    nowhere = [0] * len(known)
    return {"text": "", "ids": known, "starts": nowhere, "stops": nowhere, "pieces": pieces}


def axis_names(recording: Recording, role: str, queries: int, keys: int) -> tuple[list[str], list[str]]:
    """The names of the queries and keys of a stack's maps."""
    sides = sides_of(role)
    return _filled(recording, sides[0], queries), _filled(recording, sides[1], keys)


def _filled(recording: Recording, role: str, count: int) -> list[str]:
    """One name per row of the map, also for images and sounds, which have no tokens."""
    known = tokens_of(recording, role, count)["pieces"][:count]
    return [*known, *(str(place) for place in range(len(known), count))]


def _once(tokens: list[Token]) -> list[Token]:
    """For tokens that share a character, such as the bytes of an emoji, the first shows it, the others
    `REST`.

    >>> [token.text for token in _once([Token(7, "é", 0, 1), Token(8, "é!", 0, 2), Token(9, "!", 1, 2)])]
    ['é', '!', '⋯']
    """
    shown, at = [], 0
    for token in tokens:
        hidden = max(0, min(at, token.stop) - token.start)
        if hidden and token.stop <= at:
            token = token._replace(text=REST, start=token.stop)
        elif hidden:
            token = token._replace(text=token.text[hidden:], start=at)
        at = max(at, token.stop)
        shown.append(token)
    return shown


def _text(recording: Recording, role: str, tokens: list[Token]) -> str:
    """The text that was read, followed by the generated text."""
    read = (recording.text or "") if role == recording.reader else ""
    return read + "".join(token.text for token in tokens if token.start >= len(read))
