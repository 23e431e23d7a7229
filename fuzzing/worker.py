"""The process that does the checking. It may crash or hang: the driver notices and starts another."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from fuzzing.target import Target, seed_of

__all__ = ["Finished", "Found", "Note", "Place", "work"]

# How long one target is checked before it is another's turn.
TURN_S = 2.0
NOTE_BYTES = 64


@dataclass(frozen=True)
class Place:
    """Which checks a worker makes: every `stride`-th of a run with this base seed, from `numbers` on."""

    base: int
    stride: int
    numbers: dict[str, int]


@dataclass(frozen=True)
class Finished:
    """A turn of a target is over: so many cases were judged, and the next check has this number."""

    target: str
    cases: int
    number: int


@dataclass(frozen=True)
class Found:
    """One check failed."""

    target: str
    seed: int
    kind: str
    text: str


class Note:
    """What a worker is doing, where the driver can read it even after the worker has died."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def write(self, target: str, number: int) -> None:
        self.shared.value = f"{target} {number}".encode()

    def read(self) -> tuple[str, int] | None:
        target, _, number = bytes(self.shared.value).decode().partition(" ")
        return (target, int(number)) if number else None


def work(link: Connection, shared: Any, names: list[str], place: Place) -> None:
    """Check targets in turn until the driver hangs up."""
    import torch

    from fuzzing.targets import TARGETS

    torch.set_num_threads(1)
    os.nice(19)
    note, numbers = Note(shared), dict(place.numbers)
    while True:
        for name in names:
            try:
                numbers[name] = _turn(link, note, TARGETS[name], place, numbers[name])
            except (BrokenPipeError, EOFError):
                return


def _turn(link: Connection, note: Note, target: Target, place: Place, number: int) -> int:
    end, done = time.monotonic() + TURN_S, 0
    while time.monotonic() < end:
        seed = seed_of(place.base, target.name, number)
        note.write(target.name, number)
        found = attempt(target.check, target.name, seed)
        if isinstance(found, Found):
            link.send(found)
        number, done = number + place.stride, done + (found if isinstance(found, int) else 1)
    link.send(Finished(target.name, done, number))
    return number


def attempt(check: Callable[[int], int], name: str, seed: int) -> Found | int:
    """What one check found, or how many cases it judged."""
    try:
        return check(seed)
    except Exception as error:
        return Found(name, seed, _kind(error), traceback.format_exc())


def _kind(error: Exception) -> str:
    """What failures that are alike have in common: the error, where it was raised, and how its text ends."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    lines = str(error).strip().splitlines() or [""]
    end = re.sub(r"\d+", "0", lines[-1])[:60]
    return f"{type(error).__name__} in {os.path.basename(last.filename)}:{last.name}: {end}"
