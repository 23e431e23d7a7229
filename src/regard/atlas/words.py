"""The tokens of queries and keys, if they are known."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from regard.atlas.passages import passages
from regard.errors import RecordingError
from regard.models import Layer, Passage, Recording

__all__ = ["Words", "is_delimiter", "words_of"]

# How tokenizers write their special tokens: <s>, <|endoftext|>, [SEP].
SPECIAL = re.compile(r"<[^<>\s]*>|\[[A-Z]+\]")


@dataclass(frozen=True, eq=False)
class Words:
    """Token ids of the queries and the keys, and which keys are delimiters; or why they are unknown.

    For cross-attention, `said_from` is the first query that is not an instruction token, and `heard` the
    number of keys that are sound, without the silence after it.
    """

    q_ids: Int64[Tensor, " q"] | None = None
    k_ids: Int64[Tensor, " k"] | None = None
    delimiters: Bool[Tensor, " k"] | None = None
    no_ids: str = "no token ids were given"
    no_delimiters: str = "no delimiters were given"
    said_from: int = 0
    heard: int | None = None

    def repeating(self, far: int) -> Words | None:
        """The words with tokens renumbered so that continuations of repeated passages, `far` apart, are equal
        (`passages`); None if tokens are unknown. All layers share the result."""
        if self.q_ids is None or self.k_ids is None:
            return None
        if far not in self._repeating:
            queries, keys = passages(self.k_ids, far)
            self._repeating[far] = Words(queries[len(queries) - len(self.q_ids) :], keys)
        return self._repeating[far]

    @cached_property
    def _repeating(self) -> dict[int, Words]:
        return {}


def is_delimiter(text: str) -> bool:
    """Whether a token is a delimiter: punctuation, a line break, or a special token.

    >>> [is_delimiter(text) for text in (".", " —", "\\n", "</s>", "", " ", " the", "don't")]
    [True, True, True, True, True, False, False, False]
    """
    inside = text.strip()
    if not inside:
        # A special token has no characters of its own; a space belongs to a word.
        return "\n" in text or not text
    return SPECIAL.fullmatch(inside) is not None or all(unicodedata.category(c)[0] == "P" for c in inside)


def words_of(recording: Recording, layer: Layer, delimiters: Collection[int] | None = None) -> Words:
    """The tokens of one layer's queries and keys, from a recording of one text."""
    rows, keys = layer.map.shape[2:]
    k_ids, why_k = _ids(recording, "encoder" if layer.role == "cross" else layer.role, keys)
    if layer.role == "cross":
        q_ids, why_q = _ids(recording, "decoder", rows)
    else:
        q_ids, why_q = (None if k_ids is None else k_ids[keys - rows :]), why_k
    words = Words(q_ids, k_ids, no_ids=why_q or why_k)
    if layer.role == "cross":
        words = replace(words, said_from=_said_from(recording), heard=_heard(recording))
    if k_ids is None:
        return replace(words, no_delimiters=why_k)
    if delimiters is not None:
        return replace(
            words, delimiters=torch.isin(k_ids, torch.tensor(sorted(delimiters), dtype=torch.long))
        )
    texts, why = _texts(recording, k_ids)
    if texts is None:
        return replace(words, no_delimiters=why)
    # Image patches are written as special tokens, but are not delimiters.
    flags = torch.tensor([is_delimiter(text) for text in texts], dtype=torch.bool) & (k_ids >= 0)
    return replace(words, delimiters=flags, no_delimiters=why)


def _ids(recording: Recording, role: str, length: int) -> tuple[Tensor | None, str]:
    """The first `length` ids that a stack read; the ids of an encoder-only model are stored as the text."""
    if role in ("vision", "audio"):
        return None, f"a {role} stack reads no tokens"
    known = recording.token_ids
    ids = known.get(role, known.get("decoder") if role == "encoder" else None)
    if ids is None:
        return None, "the model was not run on token ids"
    ids = ids[0]
    if len(ids) < length:
        return None, f"the recording has {len(ids)} token ids for {length} positions"
    if role == "encoder" and _heard(recording) is not None:
        return None, "a sound has frames, and no tokens"
    # The model never reads the last token that it generates.
    ids = ids[:length].long().clone()
    for passage in _sensed(recording, role):
        # All patches of an image have the same token id, but don't count as repetitions.
        places = torch.arange(passage.start, min(passage.stop, length))
        ids[places] = -1 - places
    return ids, ""


def _texts(recording: Recording, ids: Tensor) -> tuple[list[str] | None, str]:
    try:
        tokens = recording.tokens[: len(ids)]
    except RecordingError as error:
        return None, str(error).rstrip(".")
    known = zip(tokens, ids.tolist(), strict=False)
    if len(tokens) < len(ids) or any(token.id != number for token, number in known if number >= 0):
        return None, "the recording's tokenizer was attached to another stack; give delimiters as token ids"
    return [token.text for token in tokens], ""


def _said_from(recording: Recording) -> int:
    """The first token that is not an instruction such as <|startoftranscript|>."""
    try:
        tokens = recording.tokens
    except RecordingError:
        return 0
    marks = (place for place, token in enumerate(tokens) if not SPECIAL.fullmatch(token.text.strip()))
    return next(marks, 0)


def _sensed(recording: Recording, role: str) -> list[Passage]:
    """The ranges of tokens that represent images or sounds in a text."""
    passages = next(iter(recording.passages_of(role)), [])
    return [passage for passage in passages if passage.name.startswith(("image", "sound"))]


def _heard(recording: Recording) -> int | None:
    """The number of keys that are sound; None if the source is a text."""
    passages = next(iter(recording.passages_of("encoder")), [])
    return next((passage.stop for passage in passages if passage.name == "sound"), None)
