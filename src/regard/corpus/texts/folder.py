"""A folder of text files: each file is one document."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.corpus.texts.source import Record

__all__ = ["ENDINGS", "TextFiles"]

ENDINGS = (".txt", ".md", ".text")


class TextFiles:
    """Text files by name, at any depth of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def files(self) -> list[Path]:
        found = (path for path in self.folder.rglob("*") if path.suffix in ENDINGS and path.is_file())
        return sorted(found, key=lambda path: path.relative_to(self.folder).as_posix())

    @property
    def count(self) -> int:
        return len(self.files)

    @property
    def mark(self) -> dict[str, Any]:
        found = hashlib.sha256()
        for path in self.files:
            found.update(f"{path.relative_to(self.folder).as_posix()} {path.stat().st_size}\n".encode())
        return {"file": self.folder.name, "files": len(self.files), "sha256_of_names": found.hexdigest()}

    def records(self, start: int, stop: int) -> Iterator[Record]:
        for path in self.files[start:stop]:
            name = path.relative_to(self.folder).as_posix()
            try:
                yield Record(name, path.read_text(encoding="utf-8"))
            except UnicodeDecodeError as error:
                yield Record(name, None, f"not UTF-8: {error.reason} at byte {error.start}")
            except OSError as error:
                yield Record(name, None, f"cannot be read: {error.strerror}")
