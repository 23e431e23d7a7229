"""The program on the page runs: on two ranks, and in the long tests under torchrun."""

from __future__ import annotations

import os
import re
import runpy
import socket
from pathlib import Path

import pytest

from processes import forked, python

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
MORE = """
assert seen.column_mass.shape == seen.entropy.shape == out.shape[:3]
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path) -> Path:
    blocks = re.findall(r"```text\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    [program] = [block for block in blocks if "torchrun" in block]
    path = tmp_path / "context.py"
    path.write_text(program + MORE, encoding="utf-8")
    return path


def rank_of_torchrun(path: str, rank: int, port: int) -> None:
    """Run a script with the environment that torchrun gives the first or second of two ranks."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    runpy.run_path(path, run_name="__main__")


def test_the_program_on_the_page_runs(script):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Fewer positions prove the same: 403 in place of 4,003.
    program = script.read_text("utf-8")
    assert "4_003" in program
    assert "3_900:3_964" in program
    script.write_text(program.replace("4_003", "403").replace("3_900:3_964", "300:364"), encoding="utf-8")
    given = [(rank_of_torchrun, str(script), rank, port) for rank in range(2)]
    with forked(*given[0]) as first, forked(*given[1]) as second:
        first.join()
        second.join()
        assert (first.exitcode, second.exitcode) == (0, 0)


@pytest.mark.long
def test_the_program_on_the_page_runs_under_torchrun(script):
    done = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script))
    assert done.returncode == 0, done.stderr
