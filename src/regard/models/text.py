"""Reads texts and chats, and shortens them to the model's context."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor

from regard.errors import ModelError
from regard.places import load_text

__all__ = ["chat_text", "context_length", "encode", "fit", "load_text"]

TOO_LONG = ("extend", "windows", "truncate", "refuse")
# Up to this many times the training length, a model reads a text whole.
FARTHEST = 4


def chat_text(tokenizer: Any, messages: str | Sequence[Mapping[str, Any]], *, answer: bool = True) -> str:
    """Render a chat with the template of a tokenizer or processor.

    `messages` are dicts of role and content; a string is one user message. With `answer` the text ends where
    the model's turn begins.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ModelError(
            f"{getattr(tokenizer, 'name_or_path', '') or type(tokenizer).__name__} has no chat template, so "
            "it was not made for conversations. Give it plain text."
        )
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    try:
        return tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=answer)
    except Exception as error:  # a template is a program and may raise any exception
        raise ModelError(f"the chat template refuses these messages: {error}.") from error


def context_length(model: Any) -> int | None:
    """The most tokens that a model can read at once; None if its config sets no limit."""
    config = model.config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
    lengths = (getattr(config, name, None) for name in names)
    return next((length for length in lengths if isinstance(length, int) and length > 0), None)


def encode(model: Any, tokenizer: Any, text: str, *, too_long: str = "refuse") -> list[Int[Tensor, "1 n"]]:
    """The token ids of a text, in one or several pieces.

    A text longer than the model's context is refused, unless `too_long` is "truncate", which keeps the
    beginning; "windows", which returns independent pieces; or "extend", which returns one piece with a
    warning, up to four times the context if the model's positions allow it, and windows otherwise.
    """
    ids = tokenizer(text, return_tensors="pt", verbose=False)["input_ids"]
    pieces = fit(model, ids, too_long)
    return [piece.to(model.device) for piece in (pieces[:1] if too_long == "truncate" else pieces)]


def fit(model: Any, ids: Int[Tensor, "batch n"], too_long: str) -> list[Int[Tensor, "batch piece"]]:
    """Token ids in pieces that a model can read, as `encode` describes."""
    if too_long not in TOO_LONG:
        raise ModelError(f"too_long is {too_long!r}; wanted one of {', '.join(map(repr, TOO_LONG))}.")
    n, context = ids.shape[1], context_length(model)
    if n == 0:
        raise ModelError("the text has no tokens; give at least one word.")
    if context is None or n <= context:
        return [ids]
    if too_long == "extend" and n <= FARTHEST * context and _reads_beyond(model):
        warnings.warn(
            f"the text has {n:,} tokens and the model was trained to read {context:,}: it goes on, and how "
            f"well it reads what is further on {_known_beyond(model)}. too_long='windows' reads pieces of "
            f"{context:,}, too_long='truncate' the first of them.",
            stacklevel=3,
        )
        return [ids]
    if too_long == "extend":
        why = (
            f"more than {FARTHEST} times as many"
            if _reads_beyond(model)
            else "more than it has positions for"
        )
        warnings.warn(
            f"the text has {n:,} tokens and the model reads {context:,}; that is {why}, so it is read in "
            f"{-(-n // context)} windows that know nothing of each other.",
            stacklevel=3,
        )
    if too_long == "refuse":
        raise ModelError(
            f"the text has {n} tokens and the model reads at most {context}: {n - context} too many. Use "
            f"too_long='truncate' for the first {context}, or too_long='windows' for {-(-n // context)} "
            "pieces."
        )
    return list(ids.split(context, 1))


def _reads_beyond(model: Any) -> bool:
    """Whether a model can read beyond its context: positions are rotary or absent, not from a table."""
    config = model.config.get_text_config()
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)
    return bool(rotary or getattr(config, "alibi", False))


def _known_beyond(model: Any) -> str:
    """The known loss of a model beyond its context, as text."""
    from regard.models.bundled import BEYOND, DATA

    return BEYOND if getattr(model.config, "name_or_path", "") == str(DATA) else "is not known"
