"""Stores recordings under a name, saves them as ZIP files, and opens uploads."""

from __future__ import annotations

import io
import re
import secrets
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from regard.errors import RegardError
from regard.models import Recording

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Upload", "file_name", "keep", "zipped"]

# The allowed file names of a recording: no paths, no hidden files.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,159}")
KINDS = (".json", ".safetensors")
PIECE = 1 << 20
# The largest plausible compression ratio of a recording, as numbers hardly compress.
GROWTH = 4
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')


def file_name(name: str) -> str:
    """A name that every file system accepts.

    >>> file_name("a/b: c?"), file_name(" ..") , file_name("x" * 99) == "x" * 80
    ('a-b- c-', 'recording', True)
    """
    return FORBIDDEN.sub("-", name).strip(" .")[:80].strip(" .") or "recording"


def keep(folder: Path, kept: Path, name: str) -> Path:
    """Copy a recording to the kept ones; doesn't replace one of the same name."""
    kept.mkdir(parents=True, exist_ok=True)
    plain = file_name(name)
    number = 1
    while True:
        target = kept / (f"{plain}.regard" if number == 1 else f"{plain} {number}.regard")
        if not target.exists():
            break
        number += 1
    draft = kept / f".{secrets.token_hex(8)}"
    try:
        shutil.copytree(folder, draft)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def zipped(folder: Path, name: str) -> Iterator[bytes]:
    """A recording's folder as a ZIP file, streamed piece by piece."""
    out = _Pieces()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            with (
                open(file, "rb") as opened,
                archive.open(f"{name}/{file.name}", "w", force_zip64=True) as part,
            ):
                while piece := opened.read(PIECE):
                    part.write(piece)
                    yield out.taken()
    yield out.taken()


class _Pieces(io.RawIOBase):
    """A buffer for the output of the ZIP writer."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        self._written.append(piece := bytes(data))
        return len(piece)

    def taken(self) -> bytes:
        found = b"".join(self._written)
        self._written.clear()
        return found


class Upload:
    """An upload of a recording, in pieces of its files or of one ZIP file.

    It is untrusted until `finish` has opened and checked it.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder, most
        self.size = 0
        folder.mkdir(parents=True)

    def write(self, name: str, at: int, data: bytes) -> None:
        """Append a piece to a file; `at` is the size of the file so far."""
        file = self.folder / self._checked(name, (*KINDS, ".zip"))
        known = file.stat().st_size if file.exists() else 0
        if at != known:
            raise RegardError(f"{name} has {known} bytes so far and the next piece is for byte {at}.")
        self._count(len(data))
        with open(file, "ab") as opened:
            opened.write(data)

    def finish(self) -> Path:
        """Open and check the recording; returns its folder."""
        for file in sorted(self.folder.glob("*.zip")):
            self._unpack(file)
            file.unlink()
        Recording.open(self.folder)
        return self.folder

    def drop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _count(self, more: int) -> None:
        self.size += more
        if self.size > self.most:
            raise RegardError(f"the recording is larger than {self.most:,} bytes.")
        if more > shutil.disk_usage(self.folder).free:
            raise RegardError("the disk is full. Make room, and open the recording again.")

    def _unpack(self, file: Path) -> None:
        try:
            with zipfile.ZipFile(file) as archive:
                for part in archive.infolist():
                    if part.is_dir():
                        continue
                    path = PurePosixPath(part.filename)
                    if len(path.parts) > 2 or path.is_absolute() or ".." in path.parts:
                        raise RegardError(f"{file.name} holds {part.filename!r}, which no recording has.")
                    target = self.folder / self._checked(path.name, KINDS)
                    if target.exists():
                        raise RegardError(f"{file.name} holds {path.name!r} twice.")
                    if part.file_size > GROWTH * max(part.compress_size, PIECE):
                        raise RegardError(f"{file.name} unpacks to far more than it holds.")
                    self._count(part.file_size)
                    with archive.open(part) as packed, open(target, "xb") as opened:
                        self._copy(packed, opened, part.file_size)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise RegardError(f"{file.name} cannot be unpacked: {error}.") from None

    def _copy(self, packed: IO[bytes], opened: IO[bytes], size: int) -> None:
        """Copy at most the announced number of bytes."""
        left = size
        while piece := packed.read(min(PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                raise RegardError("a file of the recording is larger than it says.")
            opened.write(piece)

    def _checked(self, name: str, kinds: tuple[str, ...]) -> str:
        if NAME.fullmatch(name) is None or not name.endswith(kinds):
            raise RegardError(f"no file of a recording is called {name!r}.")
        return name
