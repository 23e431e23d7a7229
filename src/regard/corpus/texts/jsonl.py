"""JSON lines: each line that is not blank is one document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.corpus.texts.source import Record, file_mark

__all__ = ["JsonLines"]

# The offset of every STEP-th line is stored, so that a shard need not read the file from its beginning.
STEP = 64


class JsonLines:
    """A .jsonl file of objects with one field that holds the text."""

    def __init__(self, path: Path, field: str) -> None:
        self.path, self.field = path, field

    @cached_property
    def _index(self) -> tuple[int, list[tuple[int, int]]]:
        """The number of documents, and the start of every STEP-th: byte offset and line number."""
        count, offset, places = 0, 0, []
        with open(self.path, "rb") as file:
            for line, text in enumerate(file):
                if text.strip():
                    if count % STEP == 0:
                        places.append((offset, line))
                    count += 1
                offset += len(text)
        return count, places

    @property
    def count(self) -> int:
        return self._index[0]

    @property
    def mark(self) -> dict[str, Any]:
        return {**file_mark(self.path), "documents": self.count}

    def records(self, start: int, stop: int) -> Iterator[Record]:
        if not start < stop:
            return
        offset, first = self._index[1][start // STEP]
        number = start - start % STEP
        with open(self.path, "rb") as file:
            file.seek(offset)
            for line, text in enumerate(file, first):
                if not text.strip():
                    continue
                if number >= stop:
                    return
                if number >= start:
                    yield self._record(text, f"{self.path.name}:{line + 1}")
                number += 1

    def _record(self, line: bytes, name: str) -> Record:
        try:
            found = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            return Record(name, None, f"not UTF-8: {error.reason} at byte {error.start}")
        except ValueError as error:
            return Record(name, None, f"not JSON: {error}")
        if not isinstance(found, dict):
            return Record(name, None, f"not an object but {type(found).__name__}")
        if self.field not in found:
            return Record(
                name, None, f"no field {self.field!r}; its fields are: {', '.join(found) or 'none'}"
            )
        text = found[self.field]
        if not isinstance(text, str):
            return Record(name, None, f"field {self.field!r} holds {type(text).__name__}, not a text")
        return Record(name, text)
