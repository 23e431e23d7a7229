"""Tokenizes documents, cuts them into windows, and packs windows into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from regard.atlas.words import Words, is_delimiter
from regard.corpus.texts import Document
from regard.errors import CorpusError

__all__ = ["Windows", "batches", "windows_of"]

# The number of tokens before a query in an excerpt.
BEFORE = 12


@dataclass(frozen=True)
class Windows:
    """One tokenized document, in windows of at most `size` tokens that are read independently."""

    document: Document
    ids: list[int]
    texts: list[str]
    size: int

    @property
    def starts(self) -> range:
        """The first token of each window."""
        return range(0, len(self.ids), self.size)

    def window(self, start: int) -> list[int]:
        """The ids of the window that begins at a token."""
        return self.ids[start : start + self.size]

    def words(self, start: int) -> Words:
        """The tokens of a window, in the form that a survey needs."""
        ids = torch.tensor(self.window(start))
        flags = [_delimiter(text) for text in self.texts[start : start + self.size]]
        return Words(ids, ids, torch.tensor(flags))

    def excerpt(self, start: int, query: int) -> str:
        """The text before a query of a window, the query's own token included."""
        at = start + query
        return "".join(self.texts[max(start, at - BEFORE) : at + 1])


def windows_of(document: Document, tokenizer: Any, size: int) -> Windows:
    """Tokenize a document; raises CorpusError if it has no tokens."""
    fast = bool(getattr(tokenizer, "is_fast", False))
    found = tokenizer(document.text, return_offsets_mapping=fast, verbose=False)
    ids = list(found["input_ids"])
    if not ids:
        raise CorpusError("the text has no tokens")
    if fast:
        texts = [document.text[start:stop] for start, stop in found["offset_mapping"]]
    else:
        texts = [tokenizer.decode([token]) for token in ids]
    return Windows(document, ids, texts, size)


def batches(documents: Iterable[Windows], tokens: int) -> Iterator[list[Windows]]:
    """Group documents, in order, into batches of at most `tokens` tokens, with at least one document each."""
    held: list[Windows] = []
    count = 0
    for document in documents:
        if held and count + len(document.ids) > tokens:
            yield held
            held, count = [], 0
        held.append(document)
        count += len(document.ids)
    if held:
        yield held


@cache
def _delimiter(text: str) -> bool:
    return is_delimiter(text)
