"""Recording and opening over and over in one process, without growth of memory or of open files."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from regard.models import Recording, watch
from soak.samples import digests, model, text

__all__ = ["cycles", "open_files", "resident"]

# The first so many fill caches: of schedules, of compiled patterns, of the allocator.
WARM = 200
# Growth that is no leak: an allocator that keeps another arena. A leak of one small layer a cycle, 10 KB, is
# ten times as much in a full run.
SLACK = 10 << 20


def cycles(count: int, folder: Path, warm: int = WARM) -> dict[str, Any]:
    """Record a text to disk, open it and read its maps, so many times; AssertionError if something grows."""
    llama = model(layers=2)
    ids = text(0, 33)
    wanted = None
    for cycle in range(warm + count):
        path = folder / "x.regard"
        with torch.no_grad(), watch(llama, store=path, overwrite=True):
            llama(ids)
        found = digests(Recording.open(path))
        wanted = wanted or found
        if found != wanted:
            raise AssertionError(f"cycle {cycle} read other bits")
        if cycle % 2:
            shutil.rmtree(path)  # half of them are written over the one before
        if cycle == warm - 1:
            gc.collect()
            files, memory = open_files(), resident()
    gc.collect()
    grown, more = resident() - memory, open_files() - files
    if more > 0 or grown > SLACK:
        raise AssertionError(
            f"after {count} cycles {more} more files are open and memory grew by {grown} bytes"
        )
    return {"cycles": count, "files left open": more, "memory grown by, bytes": grown}


def open_files(process: int | str = "self") -> int:
    """How many files a process has open; 0 where the system does not say."""
    folder = Path(f"/proc/{process}/fd")
    return len(os.listdir(folder)) if folder.exists() else 0


def resident(process: int | str = "self") -> int:
    """Bytes of memory that a process holds and that are no file's; 0 where the system does not say."""
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(lines["RssAnon"].split()[0]) * 1024
