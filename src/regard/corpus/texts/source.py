"""Sources of documents: one file with many documents, or many files with one each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Document", "Record", "Source", "Unreadable", "file_mark"]

# Bytes read at each end of a file for its digest.
ENDS = 1 << 16


@dataclass(frozen=True)
class Record:
    """The text of a document, or the reason why it can't be read; `name` is its location."""

    name: str
    text: str | None
    reason: str | None = None


@dataclass(frozen=True)
class Document:
    """A document of a corpus: its number over all sources, and its record."""

    number: int
    name: str
    text: str


@dataclass(frozen=True)
class Unreadable:
    """An unreadable document, with the reason."""

    number: int
    name: str
    reason: str


class Source(Protocol):
    """The interface of sources: documents in a fixed order."""

    @property
    def count(self) -> int: ...

    @property
    def mark(self) -> dict[str, Any]:
        """Plain data by which a later run recognises the same source."""
        ...

    def records(self, start: int, stop: int) -> Iterator[Record]:
        """The documents start … stop - 1 of this source."""
        ...


def file_mark(path: Path) -> dict[str, Any]:
    """A file's name, size and a digest of both its ends: enough to notice another file, cheap at any size."""
    size = path.stat().st_size
    found = hashlib.sha256()
    with open(path, "rb") as file:
        found.update(file.read(ENDS))
        file.seek(max(0, size - ENDS))
        found.update(file.read(ENDS))
    return {"file": path.name, "bytes": size, "sha256_of_ends": found.hexdigest()}
