"""The recordings that a server may show, by id."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from pathlib import Path
from typing import Any

from regard.errors import RecordingError
from regard.models import Layer, Recording
from regard.models.manifest import COMPLETE, PARTIAL, read_manifest
from regard.viewer.heads import Head
from regard.viewer.pyramid import Stored
from regard.viewer.shapes import StackShape, shapes_in_memory, shapes_on_disk

__all__ = ["Entry", "Library"]


class Entry:
    """One recording: in memory, or on disk and opened on first access.

    Files on disk may change or disappear at any time. Every access begins with `check`, which raises
    RecordingError; without it, reading pages of a truncated memory-mapped file would crash the process.
    """

    def __init__(self, name: str, path: Path | None, recording: Recording | None = None) -> None:
        self.name, self.path = name, path
        self._recording = recording
        self._heads: dict[tuple[str, int, int], Head] = {}
        self._lock = threading.RLock()
        self._signature = None if path is None else _signature(_manifest_of(path))
        self.about: dict[str, Any] = {} if path is None else read_manifest(_manifest_of(path))
        self.checksum: str = self.about.get("checksum") or secrets.token_hex(32)
        self.id = f"{_slug(name)}-{self.checksum[:10]}"
        self._shapes: dict[str, StackShape] | None = None
        self._files: dict[tuple[str, int], list[tuple[Path, tuple[int, ...]]]] = {}

    @property
    def recording(self) -> Recording:
        """The recording, after checking that its files are unchanged."""
        self.check()
        with self._lock:
            if self._recording is None:
                self._recording = Recording.open(_folder(self.path))
            return self._recording

    @property
    def shapes(self) -> dict[str, StackShape]:
        """The stacks and the sizes of their maps, without reading them."""
        if self.path is None:
            return shapes_in_memory(self.recording)
        self.check()
        with self._lock:
            if self._shapes is None:
                self._shapes = shapes_on_disk(self.recording, self.about, self.path)
            return self._shapes

    def check(self) -> None:
        """Raise RecordingError unless the recording is still the one that was opened."""
        if self.path is not None and _signature(_manifest_of(self.path)) != self._signature:
            raise RecordingError(
                f"{self.path} was changed after it was opened. Choose it again from the list."
            )

    def layer(self, role: str, number: int) -> Layer:
        """One layer, whose files are checked before they are read."""
        stack = self.recording.stack(role)
        if not stack:
            known = ", ".join(self.recording.stacks) or "none"
            raise KeyError(f"the recording has no {role}; its stacks are: {known}.")
        if number not in stack:
            known = ", ".join(map(str, stack))
            raise KeyError(f"layer {number} of the {role} was not recorded; recorded are: {known}.")
        self._check_files(role, number)
        return stack[number]

    def head(self, role: str, number: int, head: int) -> Head:
        """The map of one head."""
        layer = self.layer(role, number)
        with self._lock:
            if (role, number, head) not in self._heads:
                self._heads[role, number, head] = Head.of(layer.map, head)
            return self._heads[role, number, head]

    def stored(self, role: str, number: int, cache: Path) -> Stored:
        """The storage of a layer's pyramids, under a name derived from a hash of its data."""
        digests = [part["sha256"] for part in self._parts(role, number)] or [self.checksum]
        key = hashlib.sha256(" ".join(digests).encode()).hexdigest()[:24]
        return Stored(cache / "pyramids" / key, f"{role}-{number:03d}")

    def _parts(self, role: str, number: int) -> list[dict[str, Any]]:
        for entry in self.about.get("layers", ()):
            if (entry["site"]["role"], entry["site"]["index"]) == (role, number):
                return entry["segments"]
        return []

    def _check_files(self, role: str, number: int) -> None:
        if self.path is None:
            return
        known = self._files.get((role, number))
        if known is None:
            files = [_folder(self.path) / part["file"] for part in self._parts(role, number)]
            known = self._files[role, number] = [(file, _signature(file)) for file in files]
        for file, signature in known:
            if _signature(file) != signature:
                raise RecordingError(f"{file} was changed while it was looked at. Record again.")


class Library:
    """Recordings under the given paths, those made since the start, and those that the user keeps."""

    def __init__(self, paths: tuple[Path, ...] = (), kept: Path | None = None) -> None:
        self.paths = tuple(path.expanduser().resolve() for path in paths)
        self.kept = kept
        """The folder of kept recordings; it may not exist yet."""
        self._added: list[Entry] = []
        self._known: dict[Path, Entry] = {}
        self._seen: dict[str, Path] = {}
        self._lock = threading.Lock()

    def entries(self) -> tuple[list[Entry], list[tuple[Path, str]]]:
        """The current recordings, and the unreadable ones with the reason."""
        found, kept, broken = [], [], []
        own = _recordings(self.kept) if self.kept is not None and self.kept.is_dir() else []
        for path in (child for named in self.paths for child in _recordings(named)):
            try:
                found.append(self._open(path))
            except RecordingError as error:
                broken.append((path, str(error)))
        for path in own:
            try:
                kept.append(self._open(path, kept=True))
            except RecordingError as error:
                broken.append((path, str(error)))
        return [*found, *self._added, *kept], broken

    def get(self, name: str) -> Entry:
        """The recording of an id; KeyError for an unknown id, RecordingError if the recording is gone."""
        entries, broken = self.entries()
        for entry in entries:
            if entry.id == name:
                return entry
        if name in self._seen:
            path = self._seen[name]
            reason = next((reason for damaged, reason in broken if damaged == path), None)
            raise RecordingError(reason or f"{path} was removed or recorded anew since it was opened.")
        raise KeyError(f"no recording has the id {name!r}. Choose one from the list.")

    def add(self, source: Path | Recording, name: str) -> Entry:
        """Add a recording, from a folder that the server wrote or from memory."""
        entry = Entry(name, source) if isinstance(source, Path) else Entry(name, None, source)
        with self._lock:
            self._added = [other for other in self._added if other.id != entry.id] + [entry]
        return entry

    def keeps(self, entry: Entry) -> bool:
        """Whether a recording is among the kept ones."""
        return entry.path is not None and self.kept is not None and entry.path.parent == self.kept

    def drop(self, entry: Entry) -> None:
        """Remove a recording that was made here from the list."""
        with self._lock:
            self._added = [other for other in self._added if other is not entry]

    def _open(self, path: Path, *, kept: bool = False) -> Entry:
        with self._lock:
            known = self._known.get(path)
            if known is None or _signature(_manifest_of(path)) != known._signature:
                known = self._known[path] = Entry(path.stem if kept else path.name, path)
                if kept:  # the recording that it is a copy of may have the same name
                    known.id = f"kept-{known.id}"
                self._seen[known.id] = path
            return known


def _recordings(path: Path) -> list[Path]:
    """The path itself if it is a recording, otherwise the recordings directly below it."""
    if not path.is_dir() or _has_manifest(path):
        return [path]
    return sorted(child for child in path.iterdir() if child.is_dir() and _has_manifest(child))


def _has_manifest(path: Path) -> bool:
    return any((path / name).is_file() for name in (COMPLETE, PARTIAL))


def _manifest_of(path: Path) -> Path:
    for name in (COMPLETE, PARTIAL):
        if (path / name).is_file():
            return path / name
    raise RecordingError(f"{path} is not there any more, or is not a recording. Was it moved or removed?")


def _folder(path: Path | None) -> Path:
    if path is None:
        raise RecordingError("this recording is in memory and has no folder.")
    return path


def _signature(file: Path) -> tuple[int, ...]:
    """A signature of a file that changes when the file is replaced."""
    try:
        found = file.stat()
    except OSError:
        raise RecordingError(f"{file} is missing, and the recording needs it. Record again.") from None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _slug(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.removesuffix(".regard").lower()).strip("-")
    return plain[:40] or "recording"
