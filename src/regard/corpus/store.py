"""`Store`: the folder of a corpus run, on this machine's disk or on any file system that fsspec knows."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.corpus.state import plain
from regard.errors import CorpusError

__all__ = ["Store"]


class Store:
    """A folder with atomic writes: every file is complete or absent.

    On a local disk, a file is written under a temporary name and renamed; object stores write atomically.

    >>> store = Store("memory://stories.corpus")
    >>> store.write_json("plan.json", {"documents": 3})
    >>> store.read_json("plan.json"), store.read("other.json")
    ({'documents': 3}, None)
    """

    def __init__(self, where: str | Path) -> None:
        import fsspec

        self.where = str(where)
        try:
            self.fs, self.root = fsspec.core.url_to_fs(self.where)
        except (ImportError, ValueError) as error:
            raise CorpusError(f"{self.where} cannot be opened: {error}.") from error
        self.local = "file" in (
            self.fs.protocol if isinstance(self.fs.protocol, tuple) else (self.fs.protocol,)
        )
        self.root = self.root.rstrip("/")

    def __repr__(self) -> str:
        return f"Store({self.where})"

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if it doesn't exist."""
        try:
            return self.fs.cat_file(f"{self.root}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_json(self, name: str) -> Any:
        """A JSON file as plain data; None if it doesn't exist."""
        data = self.read(name)
        if data is None:
            return None
        try:
            return json.loads(data)
        except ValueError as error:
            raise CorpusError(
                f"{self.where}/{name} is damaged ({error}). Delete it and go on with --resume."
            ) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically: readers see the old content or the new."""
        path = f"{self.root}/{name}"
        if not self.local:
            self.fs.pipe_file(path, data)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with open(draft, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    def write_json(self, name: str, value: Any) -> None:
        """Write plain data as JSON, the same bytes for the same data."""
        self.write(name, plain(value))

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self.fs.rm_file(f"{self.root}/{name}")

    def tidy(self) -> None:
        """Remove leftovers of killed workers: temporary files, and notes of the batches being read."""
        if self.local:
            for draft in Path(self.root).rglob(".*.tmp"):
                draft.unlink(missing_ok=True)
        for name in self.names("reading"):
            self.remove(f"reading/{name}")

    def names(self, folder: str = "") -> list[str]:
        """The sorted names of the files in a subfolder, without temporary files."""
        self.fs.invalidate_cache()
        path = f"{self.root}/{folder}".rstrip("/")
        try:
            found = [str(file).rstrip("/").rsplit("/", 1)[-1] for file in self.fs.ls(path, detail=False)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))
