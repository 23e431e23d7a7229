"""Named runs of tokens: what each speaker of a chat said, which tokens stand for an image or a sound."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.models.tokens import Token

# A character that no text has.
OTHER = "\ue000"
Message = Mapping[str, Any]

__all__ = ["Passage", "chat_passages", "is_chat", "load_chat"]


class Passage(NamedTuple):
    """Tokens `start` to `stop` under one name, such as "user" or "image 1".

    The tokens of an image lie on `rows` × `columns`, row by row; both are 0 for everything else.
    """

    name: str
    start: int
    stop: int
    rows: int = 0
    columns: int = 0

    @property
    def tokens(self) -> range:
        """Its tokens, as `SegmentMass` takes them.

        >>> Passage("user", 3, 7).tokens
        range(3, 7)
        """
        return range(self.start, self.stop)


def is_chat(given: Any) -> bool:
    """Whether something is a list of messages; ModelError if one of them has no role or content."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence) or not given:
        return False
    messages = [each for each in given if isinstance(each, Mapping)]
    if not messages:
        return False
    for number, message in enumerate(given):
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise ModelError(
                f"message {number} of the chat is {message!r}; wanted a dict with role and content, such as "
                "{'role': 'user', 'content': 'Hello'}."
            )
    return True


def load_chat(path: str | Path) -> list[dict[str, Any]]:
    """The messages in a JSON file: a list of them, or an object that has them under "messages"."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}.") from None
    messages: Any = found.get("messages") if isinstance(found, dict) else found
    if not is_chat(messages):
        raise ModelError(
            f"{path} holds no chat; wanted a list such as [{{'role': 'user', 'content': 'Hello'}}], as JSON."
        )
    return messages


def chat_passages(
    messages: Sequence[Message], written: Callable[[Sequence[Message]], str], tokens: Sequence[Token]
) -> list[Passage]:
    """Which tokens are what each message said, in order, named by its role.

    `written` is the chat as its template writes it. What changes in there when a message says something else
    is what it said; the rest is the template's and has no name.
    """
    text = written(messages)
    found: list[Passage] = []
    for number, message in enumerate(messages):
        others = [
            *messages[:number],
            {**message, "content": _other(message["content"])},
            *messages[number + 1 :],
        ]
        other = written(others)
        if OTHER not in other:
            # The template leaves this message out, or its content is no text.
            continue
        start = _shared(text, other)
        stop = len(text) - _shared(text[start:][::-1], other[start:][::-1])
        inside = [i for i, token in enumerate(tokens) if token.stop > start and token.start < stop]
        if inside:
            # A token may hold the end of one message and the beginning of the next; it is the first one's.
            first = max(inside[0], found[-1].stop if found else 0)
            found.append(Passage(str(message["role"]), first, inside[-1] + 1))
    return [passage for passage in found if passage.tokens]


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _other(content: Any) -> Any:
    """Content of the same form that says something else."""
    if isinstance(content, str):
        return OTHER
    parts = [dict(part) if isinstance(part, Mapping) else part for part in content or ()]
    return [
        {**part, "text": OTHER} if isinstance(part, Mapping) and "text" in part else part for part in parts
    ]
