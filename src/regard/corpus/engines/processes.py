"""The engine of several processes on this machine; a process that dies is replaced, and its shard read
again."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from regard.corpus.job import Job
from regard.errors import CorpusError

__all__ = ["STARTS", "in_processes"]

# After this many deaths before reading any shard, the engine gives up.
STARTS = 3


class _Process:
    """One worker process, and the shard that it reads."""

    def __init__(self, job: Job) -> None:
        quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "regard.corpus.engines.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **quiet},
        )
        self.shard: int | None = None
        self.ready = False
        self._rest = b""
        self.send(job.to_dict())

    @property
    def output(self) -> Any:
        return self.process.stdout

    def send(self, what: Any) -> None:
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")  # pyright: ignore[reportOptionalMemberAccess]
            self.process.stdin.flush()  # pyright: ignore[reportOptionalMemberAccess]
        except BrokenPipeError:
            pass  # it died: its output ends, and that is noticed where answers are read

    def answers(self) -> list[dict[str, Any]] | None:
        """Its messages since the last call; None if it has ended."""
        data = os.read(self.output.fileno(), 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self) -> int:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
        return self.process.wait()


def in_processes(job: Job, shards: Sequence[int], tell: Callable[[int, int], None], workers: int) -> None:
    """Read shards in several processes; `tell(shard, documents)` after every batch."""
    waiting = list(reversed(shards))
    chosen = selectors.DefaultSelector()
    starts: Counter[str] = Counter()

    def start() -> None:
        process = _Process(job)
        chosen.register(process.output, selectors.EVENT_READ, process)

    try:
        for _ in range(min(workers, len(shards))):
            start()
        while chosen.get_map():
            for key, _ in chosen.select():
                process = key.data
                said = process.answers()
                if said is None:
                    chosen.unregister(process.output)
                    _count_death(process, process.end(), starts, waiting)
                    if waiting:
                        start()
                    continue
                for answer in said:
                    _take(process, answer, tell, starts)
                if process.ready and process.shard is None and not _give(process, waiting):
                    chosen.unregister(process.output)
                    process.end()
    finally:
        for key in list(chosen.get_map().values()):
            key.data.end()
        chosen.close()


def _take(
    process: _Process, answer: dict[str, Any], tell: Callable[[int, int], None], starts: Counter[str]
) -> None:
    """Handle one message of a worker."""
    if "refused" in answer:
        raise CorpusError(answer["refused"])
    if "ready" in answer:
        process.ready = True
        starts.clear()
    elif "done" in answer:
        process.shard = None
    else:
        tell(answer["at"], answer["documents"])


def _give(process: _Process, waiting: list[int]) -> bool:
    """Give a worker its next shard; False if there is none."""
    if not waiting:
        return False
    process.shard = waiting.pop()
    process.send(process.shard)
    return True


def _count_death(process: _Process, status: int, starts: Counter[str], waiting: list[int]) -> None:
    """Queue a dead worker's shard again; workers themselves note on disk which batch they are reading."""
    if process.shard is not None:
        waiting.append(process.shard)
    if not process.ready:
        starts["deaths"] += 1
        if starts["deaths"] >= STARTS:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise CorpusError(
                f"workers died {STARTS} times while they loaded the model ({how}). Use fewer workers or a "
                "smaller model; what they printed is above. Shards that were read stay: go on with --resume."
            )
