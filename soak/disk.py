"""A disk that is full: an error that says so, nothing half written that is called complete, nothing lost.

`small` writes to real file systems in memory, from too small to large enough (mounting them wants root).
`cut` is for any machine: the process may write files of so many bytes and no larger (RLIMIT_FSIZE). In both
the room is gone between the look at the disk and the writing, as when another program takes it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from regard.errors import RegardError
from regard.models import Recording, target, watch
from soak.samples import digests, model, text

__all__ = ["can_mount", "cut", "disk", "small"]


def can_mount(folder: Path) -> bool:
    """Whether this user may mount a file system here."""
    try:
        with mounted(folder / "try", 1 << 16):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[Path]:
    """A file system in memory with room for so many bytes."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
        try:
            yield folder
        finally:
            # Lazily: what was read of a recording is mapped, and may be so for a while.
            subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)
    finally:
        folder.rmdir()


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def disk(folder: Path, step: int) -> dict[str, int]:
    """Files that may not grow; and real file systems, where this user may mount one."""
    found = Counter(cut(folder, step))
    if can_mount(folder):
        shutil.rmtree(folder / "wanted-0.regard")
        shutil.rmtree(folder / "wanted-1.regard")
        found.update(small(folder))
    else:
        print("!! NO FILE SYSTEM CAN BE MOUNTED HERE: only limits on files were tried.")
    return dict(found)


def small(folder: Path, step: int = 4096) -> dict[str, int]:
    """Record onto file systems of ever more room."""
    found: Counter[str] = Counter()
    llama, texts, wanted, enough = _prepared(folder)
    for size in range(step, enough + 2 * step, step):
        for replaces in (False, True):
            for streaming in (False, True):
                # An old recording is made first, and the rest of the room is for the new one.
                with mounted(folder / "small", size + (enough if replaces else 0)) as disk:
                    path = disk / "x.regard"
                    if replaces:
                        _write(llama, texts[0], path, streaming=False)
                        _fill(disk, size)
                    found[_attempt(llama, texts, wanted, path, replaces, streaming)] += 1
    return {**found, "lost": 0}


def cut(folder: Path, step: int = 512) -> dict[str, int]:
    """Record with files of ever more bytes allowed."""
    found: Counter[str] = Counter()
    llama, texts, wanted, _ = _prepared(folder)
    largest = max(file.stat().st_size for file in (folder / "wanted-1.regard").iterdir())
    for size in range(step, largest + 2 * step, step):
        for replaces in (False, True):
            for streaming in (False, True):
                path = folder / "cut.regard"
                if replaces:
                    _write(llama, texts[0], path, streaming=False)
                with limited(size):
                    found[_attempt(llama, texts, wanted, path, replaces, streaming)] += 1
                shutil.rmtree(path, ignore_errors=True)
    return {**found, "lost": 0}


def _prepared(folder: Path) -> tuple[Any, list[torch.Tensor], list[dict[int, str]], int]:
    """A model, two texts, the bits that their recordings have, and how many bytes the second takes."""
    llama, texts = model(), [text(0, 13), text(1, 33)]
    paths = [folder / f"wanted-{i}.regard" for i in range(2)]
    for ids, path in zip(texts, paths, strict=True):
        _write(llama, ids, path, streaming=False)
    wanted = [digests(Recording.open(path)) for path in paths]
    page = os.sysconf("SC_PAGE_SIZE")
    return llama, texts, wanted, sum(-(-f.stat().st_size // page) * page for f in paths[1].iterdir())


def _fill(disk: Path, leave: int) -> None:
    """Take room until so many bytes are left."""
    free = shutil.disk_usage(disk).free
    if free > leave:
        (disk / "ballast").write_bytes(b"x" * (free - leave))


def _write(llama: Any, ids: torch.Tensor, path: Path, *, streaming: bool) -> None:
    with torch.no_grad(), watch(llama, store=path if streaming else None, overwrite=True) as recording:
        llama(ids)
    if not streaming:
        recording.save(path, overwrite=True)


def _attempt(llama: Any, texts: Any, wanted: Any, path: Path, replaces: bool, streaming: bool) -> str:
    """Record the second text; then look at what there is."""
    free, target.free_bytes = target.free_bytes, lambda path: 1 << 60
    try:
        _write(llama, texts[1], path, streaming=streaming)
        ended = "written"
    except RegardError as error:
        if "Make room, or save somewhere else." not in str(error):
            raise AssertionError(f"the error does not say what to do: {error}") from error
        ended = "refused"
    finally:
        target.free_bytes = free
    if not path.exists():
        _check(ended == "refused" and not replaces, f"{path} is gone")
        return "refused, nothing left"
    read = Recording.open(path)
    layers = digests(read) if read.all_layers else {}
    if read.complete:
        _check(layers == wanted[1 if ended == "written" else 0], f"{ended}, and {path} has other bits")
        return "written" if ended == "written" else "refused, the old one stands"
    _check(ended == "refused" and not replaces, f"{ended}, and {path} is partial")
    _check(streaming, f"{path} was saved in one go and is partial")
    _check(all(wanted[1][i] == bits for i, bits in layers.items()), f"{path} has a layer with other bits")
    return "refused, a part left that opens"


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
