"""A worker of the fuzzing driver that dies at every third check. Its process must be able to import it."""

from __future__ import annotations

import os
import signal
from typing import Any

from fuzzing.worker import Note, Place

__all__ = ["mortal"]


def mortal(link: Any, shared: Any, names: list[str], place: Place) -> None:
    (name,), note = names, Note(shared)
    for number in range(place.numbers[name], 100):
        note.write(name, number)
        if number % 3 == 2:
            os.kill(os.getpid(), signal.SIGKILL)
