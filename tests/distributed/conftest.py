"""Four ranks that start once; a case runs on the first one, two, three or four of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from distributed import worker
from processes import forked

RANKS = 4


class World:
    """The ranks, by the pipes to them: each is a process that reads cases and writes answers."""

    def __init__(self, ranks: list[Connection]) -> None:
        self.ranks = ranks

    def run(self, case: str, ranks: int, **given: Any) -> list[Any]:
        """What a case returned on each of its ranks; a failure on any of them fails the test."""
        module, name = case.rsplit(".", 1)
        asked = json.dumps({"module": module, "case": name, "ranks": ranks, "given": given})
        for rank in self.ranks:
            rank.send_bytes(asked.encode())
        answers = [self._answer(rank) for rank in self.ranks]
        failed = [f"rank {rank}:\n{a['failed']}" for rank, a in enumerate(answers) if "failed" in a]
        assert not failed, "\n".join(failed)
        return [answer["answer"] for answer in answers[:ranks]]

    @staticmethod
    def _answer(rank: Connection) -> dict[str, Any]:
        try:
            return json.loads(rank.recv_bytes())
        except EOFError:
            raise AssertionError("a rank ended before it answered") from None


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    meeting = tmp_path_factory.mktemp("ranks") / "meeting"
    with ExitStack() as stack:
        ours = []
        for rank in range(RANKS):
            here, there = Pipe()
            stack.enter_context(here)
            stack.enter_context(forked(worker.main, rank, RANKS, str(meeting), there))
            there.close()
            ours.append(here)
        world = World(ours)
        for rank in ours:
            World._answer(rank)
        yield world
