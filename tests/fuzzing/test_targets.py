"""A slice of what `python -m fuzzing` runs for hours: so many seeds of every target."""

from __future__ import annotations

import os
import secrets

import pytest

from fuzzing.target import seed_of
from fuzzing.targets import TARGETS
from regard.viewer.shelf import Shelf

# On CI every run makes the same cases, so that a change is judged by the change; elsewhere they are new.
BASE = 0 if "CI" in os.environ else secrets.randbits(32)


@pytest.mark.parametrize("name", TARGETS)
def test_a_slice_of_every_target_passes(name, monkeypatch):
    # The target of the server lets no model be loaded; tests after this one load theirs.
    monkeypatch.setattr(Shelf, "load", Shelf.load)
    target = TARGETS[name]
    for number in range(target.tested):
        seed = seed_of(BASE, name, number)
        try:
            target.check(seed)
        except Exception as error:
            error.add_note(f"See it again with: python -m fuzzing --replay {name}:{seed}")
            raise
