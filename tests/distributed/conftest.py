"""Four ranks that start once; a case runs on the first one, two, three or four of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from processes import checkout, started

HERE = Path(__file__).parent
RANKS = 4


class World:
    """The ranks, each a process that reads cases and writes answers."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self.processes = processes

    def run(self, case: str, ranks: int, **given: Any) -> list[Any]:
        """What a case returned on each of its ranks; a failure on any of them fails the test."""
        module, name = case.rsplit(".", 1)
        asked = json.dumps({"module": module, "case": name, "ranks": ranks, "given": given})
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(asked + "\n")
            process.stdin.flush()
        answers = [self._answer(process) for process in self.processes]
        failed = [f"rank {rank}:\n{a['failed']}" for rank, a in enumerate(answers) if "failed" in a]
        assert not failed, "\n".join(failed)
        return [answer["answer"] for answer in answers[:ranks]]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "a rank ended before it answered"
        return json.loads(line)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    meeting = tmp_path_factory.mktemp("ranks") / "meeting"
    env = checkout(HERE.parent)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                started(
                    *(sys.executable, str(HERE / "worker.py"), str(rank), str(RANKS), str(meeting)),
                    env=env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for rank in range(RANKS)
        ]
        world = World(processes)
        for process in processes:
            World._answer(process)
        yield world
