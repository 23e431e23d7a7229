"""Recording to disk, killed at random points: what is left opens, and says truly how much of it there is.

Each round forks a process that records a text layer by layer, over an older recording or into nothing. It
tells through a pipe which layers it has written, and is killed (SIGKILL) either before a random change on
disk or after a random time. Then the recording is opened again:

- what is called complete has every layer, bit for bit;
- an older recording stands until the new one is complete;
- of a partial one every layer that was told to be written is there, bit for bit;
- recording again with `resume=True` completes it, keeps every layer that was there, and leaves no other file.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from regard.models import Recording, watch, writer
from soak.samples import digests, model, text

__all__ = ["kills"]

# What Python announces before it changes something on disk.
CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
LENGTHS = (13, 65)


def kills(count: int, folder: Path, seed: int = 0) -> dict[str, int]:
    """Kill so many recordings; says what was left. Raises AssertionError at the first that is wrong."""
    chance, llama = random.Random(seed), model()
    texts = [text(i, n) for i, n in enumerate(LENGTHS)]
    references = [_record(llama, ids, folder / f"wanted-{i}.regard") for i, ids in enumerate(texts)]
    wanted = [digests(reference) for reference in references]
    start = time.perf_counter()
    _record(llama, texts[0], folder / "timed.regard")
    once = time.perf_counter() - start
    found: Counter[str] = Counter()
    for attempt in range(count):
        path = folder / f"{attempt}.regard"
        new, replaces = attempt % 2, chance.random() < 0.5
        if replaces:
            _record(llama, texts[1 - new], path)
        step = chance.randrange(1, 45) if chance.random() < 0.5 else None
        told = _killed(llama, texts[new], path, step, chance.uniform(0, 1.2 * once))
        found[_left(path, told, wanted[new], wanted[1 - new] if replaces else None)] += 1
        before = _partial(path)
        _record(llama, texts[new], path, resume=True)
        again = Recording.open(path)
        _check(again.complete, f"{path} is not complete after resuming")
        _check(before.items() <= digests(again).items(), f"{path} has lost a layer by resuming")
        for index, layer in references[new].layers.items():
            # A layer that is there already is not observed again, and plain attention rounds otherwise.
            close = torch.allclose(layer.map.dense(), again.maps[index].dense(), rtol=1e-4, atol=1e-6)
            _check(close, f"{path} resumed is not what was recorded")
        files = sorted(file.suffix for file in path.iterdir())
        _check(files == [".json"] * 2 + [".safetensors"] * 3, f"{path} has other files than its own: {files}")
        shutil.rmtree(path)
    _check(not list(folder.glob(".*.tmp")), "a draft was left behind")
    return {"kills": count, **{f"left {name}": n for name, n in sorted(found.items())}, "lost": 0}


def _record(llama: Any, ids: torch.Tensor, path: Path, resume: bool = False) -> Recording:
    with torch.no_grad(), watch(llama, store=path, resume=resume, overwrite=True) as recording:
        llama(ids)
    return recording


def _partial(path: Path) -> dict[int, str]:
    """The layers that a resumed recording begins with."""
    if not path.exists() or (read := Recording.open(path)).complete or not read.all_layers:
        return {}
    return digests(read)


def _killed(llama: Any, ids: torch.Tensor, path: Path, step: int | None, delay: float) -> int:
    """Record in a process that is killed; how many layers it said were on disk, or -1 for all of it."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # A process with threads is forked; the child only computes, writes files and dies.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            if step is not None:
                _die_before(step, path)
            real = writer.Writer.write

            def write(self: Any, layer: Any) -> None:
                known = len(self.entries)
                real(self, layer)
                # A layer is on disk once the next one begins to be written.
                os.write(writing, b"w" * (len(self.entries) - known))

            writer.Writer.write = write
            _record(llama, ids, path)
            os.write(writing, b"c")
        finally:
            os._exit(0)
    os.close(writing)
    if step is None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return -1 if told.endswith(b"c") else len(told)


def _die_before(step: int, path: Path) -> None:
    """Send SIGKILL to this process before its n-th change at a path."""
    left = step

    def kill(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event in CHANGES and path.name in str(args):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)


def _left(path: Path, told: int, new: dict[int, str], old: dict[int, str] | None) -> str:
    """What a kill has left, in a word; every promise is checked."""
    if not path.exists():
        _check(told == 0 and old is None, f"{path} is gone")
        return "nothing"
    read = Recording.open(path)
    layers = digests(read) if read.all_layers else {}
    if read.complete:
        _check(layers in (new, old), f"{path} is called complete and is neither the old nor the new one")
        _check(told != -1 or layers == new, f"{path} was told to be complete and is the old one")
        return "the new one, complete" if layers == new else "the old one, complete"
    _check(old is None, f"{path} was complete and is no more")
    _check(told != -1, f"{path} was told to be complete and is partial")
    _check(len(layers) >= told, f"{path} has {len(layers)} layers of the {told} that were written")
    _check(all(new[i] == bits for i, bits in layers.items()), f"{path} has a layer with other bits")
    return "a part of the new one"


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
