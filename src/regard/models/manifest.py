"""The manifest of a recording: its contents, its files, and their checksums."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from regard._version import __version__
from regard.errors import RecordingError
from regard.maps.damage import believing
from regard.places import COMPLETE, PARTIAL

__all__ = [
    "COMPLETE",
    "FIRST",
    "FORMAT",
    "PARTIAL",
    "digest_of",
    "entry_of",
    "read_manifest",
    "was_cut_short",
    "write_manifest",
]

FORMAT = 2
# What a manifest says if all of it can be read by a reader of the first format.
FIRST = 1


def write_manifest(path: Path, about: dict[str, Any]) -> None:
    """Replace a manifest atomically: a reader sees the old one or the new one."""
    about = {"format": FIRST, "regard": __version__, **about}
    about["checksum"] = _checksum(about)
    draft = path.with_name(f"{path.name}.tmp")
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check a manifest; RecordingError says what is wrong."""
    with believing(path, RecordingError, "Record again."):
        about = json.loads(path.read_bytes())
    if not isinstance(about, dict) or not isinstance(about.get("format"), int):
        raise RecordingError(f"{path} is not the manifest of a recording.")
    if about["format"] > FORMAT:
        raise RecordingError(
            f"{path.parent} has format {about['format']}, written by regard {about.get('regard')}; this "
            f"regard ({__version__}) reads up to format {FORMAT}. Upgrade regard."
        )
    if about.get("checksum") != _checksum(about):
        raise RecordingError(f"{path} is damaged: its checksum does not match what it says. Record again.")
    return about


def was_cut_short(folder: Path) -> bool:
    """Whether a recording in the folder is unfinished.

    If a writer is killed after its last step, both manifests of one recording are left; it is complete.
    """
    if not (folder / PARTIAL).exists():
        return False
    try:
        return read_manifest(folder / COMPLETE).get("stem") != read_manifest(folder / PARTIAL).get("stem")
    except RecordingError:
        return True


def entry_of(file: Path) -> dict[str, Any]:
    """The manifest entry of a file: name, size and checksum."""
    return {"file": file.name, "bytes": file.stat().st_size, "sha256": digest_of(file)}


def digest_of(file: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _checksum(about: dict[str, Any]) -> str:
    said = {key: value for key, value in about.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
