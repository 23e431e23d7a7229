"""The programs of `python -m soak` at a small size: they raise where something is wrong or lost."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from effort import is_exhaustive
from processes import checkout, python
from regard.models import writer
from soak import results
from soak.cycles import cycles
from soak.disk import can_mount, cut, small
from soak.kills import kills
from soak.memory import faults
from soak.repeats import repeats
from soak.threads import threads
from soak.tiles import SHORT, tiles

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_recordings_that_are_killed_lose_nothing_that_was_written(tmp_path):
    found = kills(9, tmp_path, seed=1)
    assert found["kills"] == 9
    assert sum(n for name, n in found.items() if name.startswith("left ")) == 9


@needs_fork
def test_a_recording_that_is_called_complete_too_early_is_found(tmp_path, monkeypatch):
    real = writer.Writer._about
    monkeypatch.setattr(writer.Writer, "_about", lambda self: {**real(self), "complete": True})
    with pytest.raises(AssertionError, match="is called complete and is neither the old nor the new one"):
        kills(40, tmp_path)


@linux
def test_files_that_may_not_grow_leave_no_half_recording(tmp_path):
    found = cut(tmp_path, step=4099)
    assert found["written"] >= 4
    assert found["refused, the old one stands"] >= 2
    assert found["refused, nothing left"] >= 2


@linux
def test_a_file_system_without_room_leaves_no_half_recording(tmp_path):
    if not can_mount(tmp_path):
        pytest.skip("NO FILE SYSTEM CAN BE MOUNTED HERE (that wants root): A FULL DISK IS NOT TESTED.")
    found = small(tmp_path, step=5 * 4096)
    assert found["written"] >= 4
    assert found["refused, the old one stands"] >= 2
    assert found["refused, nothing left"] >= 2


def test_no_memory_in_the_middle_of_a_pass_changes_no_later_bit():
    assert faults(every=7, n=63)["operations made to fail"] >= 20


@linux
def test_a_process_with_little_memory_raises_and_goes_on():
    code = "from soak.memory import limits; import json; print(json.dumps(limits(2, n=257, most=4 << 20)))"
    done = python("-c", code, env=checkout(ROOT), check=True)
    assert json.loads(done.stdout.splitlines()[-1])["other bits"] == 0


@linux
def test_recording_and_opening_leaves_no_file_open(tmp_path):
    assert cycles(12, tmp_path, warm=8)["files left open"] == 0


def test_threads_that_read_one_map_agree():
    assert threads(16, rounds=3, reads=9) == {"threads": 16, "maps": 6, "reads": 6 * 16 * 9, "wrong": 0}


def test_clients_of_random_tiles_get_right_answers(tmp_path):
    requests = 400 if is_exhaustive() else 130
    found = tiles(64, tmp_path, requests=requests, lengths=(SHORT,))
    assert found["requests"] >= requests
    assert found["tiles"] + found.get("told that the overview is being made", 0) == found["requests"]
    assert found["tiles compared with the map"] > 0


def test_a_call_repeated_has_the_same_bits():
    assert repeats(3, "cpu", n=65)["other bits"] == 0


def test_results_say_when_and_how_they_were_made(tmp_path):
    path = tmp_path / "results.json"
    results.note("kills", "python -m soak kills --count 3", {"kills": 3, "lost": 0}, path)
    results.note("cycles", "python -m soak cycles", {"cycles": 1}, path)
    said = results.read(path)
    assert list(said) == ["cycles", "kills"]
    assert said["kills"]["counts"] == {"kills": 3, "lost": 0}
    assert set(said["kills"]) == {"date", "commit", "command", "counts"}
