"""The driver: starts workers, counts what they check, and saves every failure at once."""

from __future__ import annotations

import multiprocessing as mp
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from fuzzing.failures import Failures
from fuzzing.target import Target, seed_of
from fuzzing.worker import NOTE_BYTES, Finished, Found, Note, Place, work

__all__ = ["Driver"]

# A check that takes longer is a hang. Most take milliseconds.
HANG_S = 300.0
TELL_S = 5.0


@dataclass
class Hand:
    """One worker process and what is known of it."""

    process: Any
    link: Connection
    note: Note
    numbers: dict[str, int]
    busy_with: tuple[str, int] | None = None
    since: float = field(default_factory=time.monotonic)


@dataclass
class Driver:
    """Fuzzes some targets for some time with some processes. `tell` is called every few seconds."""

    targets: dict[str, Target]
    base: int
    jobs: int
    failures: Failures
    tell: Callable[[Driver], None]
    hang_s: float = HANG_S
    cases: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)

    def run(self, seconds: float) -> None:
        """Fuzz until the time is over; whatever ends this ends the workers too."""
        end = time.monotonic() + seconds
        hands = [self._hired(dict.fromkeys(self.targets, first)) for first in range(self.jobs)]
        told = 0.0
        try:
            while time.monotonic() < end:
                for link in wait([hand.link for hand in hands], timeout=1.0):
                    place = next(i for i, hand in enumerate(hands) if hand.link is link)
                    hands[place] = self._heard(hands[place])
                hands = [self._watched(hand) for hand in hands]
                if time.monotonic() - told > TELL_S:
                    self.tell(self)
                    told = time.monotonic()
        finally:
            for hand in hands:
                _dismissed(hand)
            self.tell(self)

    def _hired(self, numbers: dict[str, int]) -> Hand:
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        shared = context.RawArray("c", NOTE_BYTES)
        place = Place(self.base, self.jobs, dict(numbers))
        process = context.Process(
            target=work, args=(theirs, shared, list(self.targets), place), daemon=True, name="fuzzing"
        )
        process.start()
        theirs.close()
        return Hand(process, ours, Note(shared), dict(numbers))

    def _heard(self, hand: Hand) -> Hand:
        try:
            message = hand.link.recv()
        except (EOFError, OSError):
            hand.process.join(5.0)
            return self._replaced(hand, f"the worker died: exit code {hand.process.exitcode}")
        if isinstance(message, Finished):
            self.cases[message.target] += message.cases
            hand.numbers[message.target] = message.number
        elif isinstance(message, Found):
            self._save(message)
        return hand

    def _watched(self, hand: Hand) -> Hand:
        """Replace a worker that has been at one check for too long."""
        busy = hand.note.read()
        if busy != hand.busy_with or busy is None:
            hand.busy_with, hand.since = busy, time.monotonic()
        elif time.monotonic() - hand.since > self.hang_s:
            hand.process.kill()
            hand.process.join()
            return self._replaced(hand, f"the check took more than {self.hang_s:.0f} s")
        return hand

    def _replaced(self, hand: Hand, why: str) -> Hand:
        """Start another worker after the check that ended this one."""
        hand.link.close()
        busy = hand.note.read()
        if busy is None:
            raise RuntimeError(f"a worker ended before its first check; {why}.")
        name, number = busy
        self._save(Found(name, seed_of(self.base, name, number), why, why))
        # Of its unfinished turn it is known how many checks were made, and each judged one case at least.
        self.cases[name] += (number - hand.numbers[name]) // self.jobs + 1
        return self._hired({**hand.numbers, name: number + self.jobs})

    def _save(self, found: Found) -> None:
        self.found[found.target] += 1
        self.failures.save(found)


def _dismissed(hand: Hand) -> None:
    hand.link.close()
    hand.process.terminate()
    hand.process.join(5.0)
    if hand.process.exitcode is None:
        hand.process.kill()
        hand.process.join()
