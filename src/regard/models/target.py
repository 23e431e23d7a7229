"""The folder that a recording is written to: may it be, is there room, what is to be removed."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.errors import RecordingError
from regard.models.manifest import COMPLETE, PARTIAL, was_cut_short
from regard.models.sizes import spoken

__all__ = ["DRAFTS", "check_room", "check_target", "free_bytes", "remove_layer", "remove_others"]

# Names of temporary files, which a killed process leaves behind. The second is safetensors' own.
DRAFTS = ("*.tmp", ".tmp??????")


def check_target(path: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise RecordingError if the path exists and the caller did not allow replacing or resuming it."""
    if path.exists() and not path.is_dir():
        raise RecordingError(f"{path} is a file; a recording is a folder. Choose another name.")
    if (
        path.is_dir()
        and any(path.iterdir())
        and not any((path / name).exists() for name in (COMPLETE, PARTIAL))
    ):
        raise RecordingError(
            f"{path} is a folder that holds something other than a recording; nothing in it is overwritten. "
            "Choose another name."
        )
    partial = was_cut_short(path)
    if overwrite or (resume and partial):
        return
    if (path / COMPLETE).exists() and resume:
        raise RecordingError(f"{path} is complete: there is nothing to resume. Leave out resume.")
    if (path / COMPLETE).exists():
        raise RecordingError(
            f"{path} holds a recording already, and it is not overwritten. Choose another name, or replace "
            "it with overwrite=True (regard record --force)."
        )
    if partial:
        raise RecordingError(
            f"{path} holds a recording that was cut short. Complete it with resume=True (regard record "
            "--resume), or replace it with overwrite=True (regard record --force)."
        )


def check_room(path: Path, size: int) -> None:
    """Raise RecordingError, with both sizes, if so many bytes don't fit on the disk."""
    free = free_bytes(path)
    if size > free:
        raise RecordingError(
            f"the recording takes {spoken(size)} and {spoken(free)} are free at {path}. Make room, save "
            "somewhere else, or record fewer layers."
        )


def free_bytes(path: Path) -> int:
    """The room on the disk that a path is on, or will be."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path if path.exists() else os.curdir).free


def remove_layer(path: Path, entry: dict[str, Any]) -> None:
    """Remove the files of a layer."""
    for part in entry["segments"]:
        with suppress(OSError):
            (path / part["file"]).unlink()


def remove_others(path: Path, about: dict[str, Any]) -> None:
    """Remove the files that the manifest doesn't list: an earlier recording, and temporary files."""
    named = {part["file"] for entry in about["layers"] for part in entry["segments"]}
    named |= {COMPLETE, about["tokens"]["file"]}
    for draft in path.parent.glob(f".{path.name}.*.tmp"):
        shutil.rmtree(draft, ignore_errors=True)
    for file in path.iterdir():
        ours = file.suffix in (".safetensors", ".json") or any(file.match(pattern) for pattern in DRAFTS)
        if ours and file.name not in named:
            with suppress(OSError):
                file.unlink()
