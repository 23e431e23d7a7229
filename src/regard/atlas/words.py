"""The tokens of queries and keys, if they are known."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from regard.errors import RecordingError
from regard.models import Layer, Recording

__all__ = ["Words", "is_delimiter", "words_of"]

# How tokenizers write their special tokens: <s>, <|endoftext|>, [SEP].
SPECIAL = re.compile(r"<[^<>\s]*>|\[[A-Z]+\]")


@dataclass(frozen=True, eq=False)
class Words:
    """Token ids of the queries and the keys, and which keys are delimiters; or why they are unknown."""

    q_ids: Int64[Tensor, " q"] | None = None
    k_ids: Int64[Tensor, " k"] | None = None
    delimiters: Bool[Tensor, " k"] | None = None
    no_ids: str = "no token ids were given"
    no_delimiters: str = "no delimiters were given"


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
    """What a recording of one text knows about the tokens of one layer's queries and keys."""
    rows, keys = layer.map.shape[2:]
    k_ids, why_k = _ids(recording, "encoder" if layer.role == "cross" else layer.role, keys)
    if layer.role == "cross":
        q_ids, why_q = _ids(recording, "decoder", rows)
    else:
        q_ids, why_q = (None if k_ids is None else k_ids[keys - rows :]), why_k
    words = Words(q_ids, k_ids, no_ids=why_q or why_k)
    if k_ids is None:
        return replace(words, no_delimiters=why_k)
    if delimiters is not None:
        return replace(
            words, delimiters=torch.isin(k_ids, torch.tensor(sorted(delimiters), dtype=torch.long))
        )
    texts, why = _texts(recording, k_ids)
    flags = None if texts is None else torch.tensor([is_delimiter(text) for text in texts], dtype=torch.bool)
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
    # The last token of a generated text was never read.
    return ids[:length].long(), ""


def _texts(recording: Recording, ids: Tensor) -> tuple[list[str] | None, str]:
    try:
        tokens = recording.tokens[: len(ids)]
    except RecordingError as error:
        return None, str(error).rstrip(".")
    if [token.id for token in tokens] != ids.tolist():
        return None, "the recording's tokenizer was attached to another stack; give delimiters as token ids"
    return [token.text for token in tokens], ""
