"""Recordings on disk: any interleaving of saving, being cut off, resuming and opening."""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fuzzing.machines import run_machine
from fuzzing.target import Target
from regard.errors import RecordingError
from regard.masks import Causal
from regard.models import Recording

__all__ = ["RECORDINGS", "RecordingMachine"]

EXAMPLES = 3
# What Python announces before it changes something on disk.
CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
LENGTHS = (3, 5, 9)


class CutOffError(BaseException):
    """The end of a process, as its files see it: nothing is cleaned up."""


class Cut:
    """Cuts off what writes to a folder, before its n-th change on disk."""

    def __init__(self) -> None:
        self.folder, self.left = "", 0
        # A hook stays for good, so there is one, and it mostly does nothing.
        sys.addaudithook(self.heard)

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left and event in CHANGES and self.folder in str(arguments[0]):
            self.left -= 1
            if self.left == 0:
                raise CutOffError


@cache
def cut() -> Cut:
    return Cut()


@cache
def recordings() -> list[Recording]:
    """Recordings that can be told apart by their lengths."""
    from viewer.samples import layer, recording

    return [recording(*(layer(i, n, n, Causal()) for i in range(3))) for n in LENGTHS]


class RecordingMachine(RuleBasedStateMachine):
    """A place on disk, which recording is complete there, and which were begun since."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fuzzing-"))
        self.path = self.folder / "x.regard"
        self.complete: int | None = None
        self.begun: set[int] = set()

    def teardown(self) -> None:
        cut().left = 0
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(which=st.integers(0, 2), overwrite=st.booleans(), resume=st.booleans(), step=st.integers(0, 60))
    def save(self, which: int, overwrite: bool, resume: bool, step: int) -> None:
        """Save, cut off before some change on disk; step 0 and steps that never come let it finish."""
        cut().folder, cut().left = str(self.folder), step
        taken = self.path.exists()
        self.begun.add(which)
        try:
            recordings()[which].save(self.path, overwrite=overwrite, resume=resume)
        except CutOffError:
            return
        except RecordingError as error:
            # Another recording is there, or a partial one of another text.
            if taken and ("overwrite" in str(error) or "resume" in str(error)):
                return
            raise
        finally:
            cut().left = 0
        self.complete, self.begun = which, set()

    @precondition(lambda self: hasattr(self, "path") and self.path.exists())
    @rule()
    def copy(self) -> None:
        """What is opened and saved elsewhere is the same there, and partial if it was partial."""
        read, there = Recording.open(self.path), self.folder / "copy.regard"
        if read.all_layers:
            read.save(there, overwrite=True)
            again = Recording.open(there)
            assert again.complete == read.complete
            assert len(again.all_layers) == len(read.all_layers)
            shutil.rmtree(there)

    @precondition(lambda self: hasattr(self, "path"))
    @invariant()
    def what_is_there_reads(self) -> None:
        if not self.path.exists():
            assert self.complete is None
            return
        read = Recording.open(self.path)
        # Layers are written at the same time, so a later one may be there without an earlier one.
        maps = {layer.site: layer.map.dense() for layer in read.all_layers}
        assert len(maps) == len(read.all_layers)
        found = {LENGTHS.index(one.shape[-1]) for one in maps.values()}
        assert len(found) <= 1, "layers of two recordings"
        allowed = self.begun | ({self.complete} if self.complete is not None else set())
        assert found <= allowed, (found, allowed)
        if self.complete is not None:
            assert read.complete, "a complete recording became a partial one"
        for which in found:
            whole = recordings()[which].all_layers
            assert len(maps) == len(whole) or not read.complete
            wanted = {layer.site: layer.map.dense() for layer in whole}
            assert [*maps] == [place for place in wanted if place in maps]
            assert all(torch.equal(one, wanted[place]) for place, one in maps.items())


def check(seed: int) -> int:
    return run_machine(RecordingMachine, seed, EXAMPLES, steps=12)


RECORDINGS = Target("recordings", "one step of saving, being cut off and resuming", check, tested=1)
