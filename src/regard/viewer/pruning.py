"""Keeps the stored overviews within a size limit by removing the least recently used."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from regard.viewer.pyramid import Pyramid

__all__ = ["prune", "touch"]

# After this many seconds without a write, a temporary file is assumed to belong to a dead process.
DEAD = 24 * 3600.0


class Kept(NamedTuple):
    """One head's overviews on disk."""

    used: float
    about: Path
    nbytes: int


def touch(pyramid: Pyramid) -> None:
    """Mark overviews as used now."""
    try:
        os.utime(pyramid.about_file)
    except OSError:
        # Another user's cache may be read-only; that user's server prunes it.
        return


def prune(cache: Path, most: int, spare: Collection[Pyramid] = ()) -> int:
    """Remove overviews under `cache`, least recently used first, until at most `most` bytes are left.

    Returns the bytes freed. Overviews of `spare` are never removed. A server makes removed overviews again
    when it needs them.
    """
    spared = {pyramid.about_file for pyramid in spare}
    heads = sorted(_heads(cache))
    left = sum(head.nbytes for head in heads)
    freed = 0
    for head in heads:
        if left - freed <= most:
            break
        if head.about not in spared:
            freed += _remove(head)
    _sweep(cache)
    return freed


def _heads(cache: Path) -> list[Kept]:
    found = []
    for about in cache.glob("pyramids/*/*.json"):
        try:
            found.append(Kept(about.stat().st_mtime, about, sum(map(_size, _files(about)))))
        except OSError:
            continue  # another process was faster
    return found


def _files(about: Path) -> list[Path]:
    """All files of one head, the marker of completeness first."""
    return [about, *(about.with_suffix(f".{how}") for how in Pyramid.HOWS)]


def _size(file: Path) -> int:
    """The disk space of a file; tiles of zeros are holes and take none."""
    found = file.stat()
    blocks = getattr(found, "st_blocks", None)
    return found.st_size if blocks is None else blocks * 512


def _remove(head: Kept) -> int:
    try:
        for file in _files(head.about):
            file.unlink(missing_ok=True)
    except OSError:
        return 0
    _remove_if_empty(head.about.parent)
    return head.nbytes


def _sweep(cache: Path) -> None:
    """Remove temporary files of dead processes."""
    for draft in cache.glob("pyramids/*/.*.tmp"):
        try:
            if time.time() - draft.stat().st_mtime > DEAD:
                draft.unlink()
                _remove_if_empty(draft.parent)
        except OSError:
            continue


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
