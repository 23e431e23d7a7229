"""Named ranges of tokens: the messages of a chat, the tokens of an image or a sound."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.models.tokens import Token

# A character that does not occur in texts.
OTHER = "\ue000"
Message = Mapping[str, Any]

__all__ = ["Passage", "chat_passages", "is_chat", "load_chat"]


class Passage(NamedTuple):
    """Tokens `start` to `stop` with a name, such as "user" or "image 1".

    The tokens of an image form a grid of `rows` × `columns`, row by row; for other passages both are 0.
    """

    name: str
    start: int
    stop: int
    rows: int = 0
    columns: int = 0

    @property
    def tokens(self) -> range:
        """The range of its tokens, as `SegmentMass` takes it.

        >>> Passage("user", 3, 7).tokens
        range(3, 7)
        """
        return range(self.start, self.stop)


def is_chat(given: Any) -> bool:
    """Whether the value is a list of messages; ModelError if one of them has no role or content."""
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
    """The passage of each message's content, in order, named by the message's role.

    `written` is the chat as rendered by the template. To find a message's content in it, the chat is rendered
    again with other content: the characters that change are the content, the rest belongs to the template.
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
            # The template leaves this message out, or its content is not text.
            continue
        start = _shared(text, other)
        stop = len(text) - _shared(text[start:][::-1], other[start:][::-1])
        inside = [i for i, token in enumerate(tokens) if token.stop > start and token.start < stop]
        if inside:
            # A token that spans two messages belongs to the first.
            first = max(inside[0], found[-1].stop if found else 0)
            found.append(Passage(str(message["role"]), first, inside[-1] + 1))
    return [passage for passage in found if passage.tokens]


def _shared(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _other(content: Any) -> Any:
    """Different content of the same form."""
    if isinstance(content, str):
        return OTHER
    parts = [dict(part) if isinstance(part, Mapping) else part for part in content or ()]
    return [
        {**part, "text": OTHER} if isinstance(part, Mapping) and "text" in part else part for part in parts
    ]
