"""Tokens and their spans in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.errors import RecordingError

__all__ = ["Token", "tokens_of"]

# Several byte-level tokens may form one character; decoding this many before a token gives its characters.
CONTEXT = 8


class Token(NamedTuple):
    """One token: its id, its characters, and their span in the text."""

    id: int
    text: str
    start: int
    stop: int


def tokens_of(
    tokenizer: Any,
    ids: Sequence[int],
    text: str | None = None,
    spans: Sequence[tuple[int, int]] | None = None,
) -> list[Token]:
    """The tokens of one row of ids, with their spans in `text`, or else in the decoded text.

    `spans` are the spans of the first tokens, if known; otherwise `text` is tokenized again. Generated ids
    follow the text.
    """
    if text is None:
        return _decoded(tokenizer, ids, 0, "")
    spans = _spans(tokenizer, ids, text) if spans is None else spans
    known = [Token(i, text[a:b], a, b) for i, (a, b) in zip(ids, spans, strict=False)]
    return known + _decoded(tokenizer, ids, len(known), text)


def _spans(tokenizer: Any, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
    """The span of each id, by tokenizing the text again; raises if the ids differ."""
    if not getattr(tokenizer, "is_fast", False):
        raise RecordingError(
            f"{type(tokenizer).__name__} cannot say where tokens stand in a text (it is not a fast "
            "tokenizer). Attach it without the text."
        )
    best: list[int] = []
    for special in (True, False):
        found = tokenizer(text, return_offsets_mapping=True, add_special_tokens=special)
        if list(ids[: len(found["input_ids"])]) == list(found["input_ids"]):
            return [tuple(span) for span in found["offset_mapping"]]
        best = best or list(found["input_ids"])
    at = next(
        (i for i, (a, b) in enumerate(zip(ids, best, strict=False)) if a != b), min(len(ids), len(best))
    )
    raise RecordingError(
        f"the text has {len(best)} tokens and the recording {len(ids)}, and they differ at token {at}; "
        "attach the very text that was tokenized, or attach the tokenizer without a text."
    )


def _decoded(tokenizer: Any, ids: Sequence[int], start: int, text: str) -> list[Token]:
    found: list[Token] = []
    at = len(text)
    for place in range(start, len(ids)):
        near = max(0, place - CONTEXT)
        before = tokenizer.decode(list(ids[near:place]))
        piece = tokenizer.decode(list(ids[near : place + 1]))[len(before) :]
        found.append(Token(int(ids[place]), piece, at, at + len(piece)))
        at += len(piece)
    return found
