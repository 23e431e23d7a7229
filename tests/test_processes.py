"""What tests start ends with them, however they end."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from processes import bound, checkout, python, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
TESTS = Path(__file__).parent

# A program that holds the named pipe open as long as it lives.
HOLD = "import sys; from test_processes import hold; hold(sys.argv[1])"
FOREVER = """
import sys, time
import pytest
import processes
from processes import forked, started
from test_processes import HOLD, hold

processes.PRELOADED.clear()  # nothing that takes long to import is needed

@pytest.fixture
def server():
    with started(sys.executable, "-c", HOLD, {pipe!r}) as program, forked(hold, {pipe!r}) as fork:
        yield program, fork

def test_that_never_ends(server):
    time.sleep(1e6)
"""


def hold(pipe: str) -> None:
    with open(pipe, "w") as held:
        held.write("up\n")
        held.flush()
        time.sleep(1e6)


@pytest.fixture
def pipe(tmp_path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_by_a_signal_leaves_no_process_behind(pipe, tmp_path, number):
    script = tmp_path / "test_forever.py"
    script.write_text(FOREVER.format(pipe=str(pipe)))
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", os.devnull, "-p", "no:xdist", script]
    with started(*command, env=checkout(TESTS), cwd=tmp_path, stdout=-3, stderr=-3) as run:
        with pipe.open() as held:
            assert [held.readline() for _ in range(2)] == ["up\n"] * 2
            run.send_signal(number)
            # The pipe is at its end when no process holds it any more.
            assert held.read() == ""
        assert run.wait() == (-signal.SIGKILL if number == signal.SIGKILL else 2)


def test_a_command_that_was_wanted_by_a_process_that_has_ended_does_not_begin(tmp_path):
    *shim, parent, _, _ = bound("touch", tmp_path / "made")
    done = python(*shim[1:], str(int(parent) + 1), "touch", tmp_path / "made")
    assert (done.returncode, done.stderr) == (1, "the process that wanted this one has ended\n")
    assert not (tmp_path / "made").exists()
