"""Clients that ask a server for random tiles, all at once: every answer is right, and nothing grows.

The server is `regard view` in a process of its own, over a short recording, whose tiles are computed when
they are asked for, and one long enough to need stored overviews: coarse tiles of it are refused with 503
until these are made. Each client keeps one connection and asks again as soon as it has an answer.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from regard.models import Recording
from regard.viewer.pooling import TILE, levels_of
from soak.cycles import open_files, resident
from soak.samples import random_recording

__all__ = ["SHORT", "tiles"]

SOURCE = Path(__file__).parents[1] / "src"
SHORT, LONG = 1_201, 9_001
# Tiles of so fine a level are compared with the map, cell by cell.
COMPARED = 2


@dataclass
class Tally:
    """What all clients together have seen."""

    counts: Counter[str] = field(default_factory=Counter)
    bodies: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1


def tiles(
    clients: int,
    folder: Path,
    *,
    requests: int | None = None,
    minutes: float | None = None,
    lengths: tuple[int, ...] = (SHORT, LONG),
) -> dict[str, int]:
    """Ask until so many answers have come, or minutes have passed; AssertionError if one is wrong."""
    shelf = folder / "shelf"
    shelf.mkdir()
    read = {n: Recording.open(random_recording(shelf / f"{n}.regard", n)) for n in lengths}
    tally, end = Tally(), None if minutes is None else time.monotonic() + 60 * minutes

    def goes_on() -> bool:
        left = requests is None or tally.counts["requests"] < requests
        return left and (end is None or time.monotonic() < end) and not tally.wrong

    server = Server(shelf, folder / "cache")
    try:
        names = server.recordings()
        threads = [
            threading.Thread(target=_client, args=(server.address, names, read, tally, goes_on, seed))
            for seed in range(clients)
        ]
        _settle(server, threads, tally, clients)
        files, memory = open_files(server.process.pid), resident(server.process.pid)
        for thread in threads:
            thread.join()
        after = open_files(server.process.pid) - files, resident(server.process.pid) - memory
    finally:
        ended = server.close()
    if tally.wrong or ended != 0:
        raise AssertionError("; ".join(tally.wrong[:5]) or f"the server ended with status {ended}")
    return {
        "clients": clients,
        **dict(sorted(tally.counts.items())),
        "wrong or failed": 0,
        "files left open": max(0, after[0]),
        "memory grown by, bytes": after[1],
    }


def _settle(server: Server, threads: list[threading.Thread], tally: Tally, clients: int) -> None:
    """Start all clients, and wait until they have had a few answers: connections are open, caches filled."""
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and tally.counts["requests"] < 4 * clients:
        time.sleep(0.05)


def _client(
    address: str,
    names: dict[int, str],
    read: dict[int, Recording],
    tally: Tally,
    goes_on: Callable[[], bool],
    seed: int,
) -> None:
    chance = random.Random(seed)
    connection = http.client.HTTPConnection(address)
    while goes_on():
        tokens = chance.choice(list(names))
        path, check = _question(chance, tokens, names[tokens], read[tokens])
        try:
            answer, body = _asked(connection, path, tally)
            said = _wrong(answer, path, body, check, tally)
        except (OSError, http.client.HTTPException) as error:
            said = repr(error)
        if said:
            tally.wrong.append(f"{path}: {said}")
    connection.close()


def _asked(
    connection: http.client.HTTPConnection, path: str, tally: Tally
) -> tuple[http.client.HTTPResponse, bytes]:
    """The answer to a question. A server may close a connection that was idle; then it is opened again."""
    used = connection.sock is not None
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
        connection.close()
        if not used:
            raise
        tally.add("idle connections opened again")
        return _asked(connection, path, tally)
    return answer, answer.read()


def _question(chance: random.Random, tokens: int, name: str, recording: Recording) -> tuple[str, Any]:
    """A random tile; where it is fine enough, with what makes it again."""
    level = chance.randrange(levels_of(tokens, tokens))
    across = -(-tokens // (TILE << level))
    head, row, col = chance.randrange(4), chance.randrange(across), chance.randrange(across)
    how = chance.choice(("mean", "max"))
    path = f"/api/recordings/{name}/stacks/decoder/layers/0/heads/{head}/tile"
    check = None
    if tokens == SHORT and level <= COMPARED and chance.random() < 0.05:
        check = (recording, head, level, row, col, how)
    return f"{path}?level={level}&row={row}&col={col}&how={how}", check


def _wrong(answer: http.client.HTTPResponse, path: str, body: bytes, check: Any, tally: Tally) -> str | None:
    """What is wrong with an answer, if anything is."""
    tally.add("requests")
    if answer.status == 503:
        tally.add("told that the overview is being made")
        return None if b"being made" in body else f"503: {body[:200]!r}"
    if answer.status != 200:
        return f"{answer.status}: {body[:200]!r}"
    tally.add("tiles")
    if tally.bodies.setdefault(path, hash(body)) != hash(body):
        return "it has other bits than before"
    if check is None:
        return None
    tally.add("tiles compared with the map")
    found, wanted = torch.frombuffer(bytearray(body), dtype=torch.float32), _pooled(*check)
    shape = int(answer.headers["x-rows"]), int(answer.headers["x-cols"])
    close = shape == tuple(wanted.shape) and torch.allclose(found.view(shape), wanted, rtol=1e-5, atol=1e-8)
    return None if close else "it is not what the map says"


def _pooled(recording: Recording, head: int, level: int, row: int, col: int, how: str) -> torch.Tensor:
    """A tile by the plainest way: the cells, and a mean or a maximum over each block."""
    side, block = TILE << level, 1 << level
    rows, cols = slice(row * side, (row + 1) * side), slice(col * side, (col + 1) * side)
    cells = recording.maps[0][0, head, rows, cols].double()
    down, across = (-(-n // block) for n in cells.shape)
    more = (0, across * block - cells.shape[1], 0, down * block - cells.shape[0])

    def blocks(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, more).view(down, block, across, block)

    if how == "max":
        return blocks(cells).amax((1, 3)).float()
    return (blocks(cells).sum((1, 3)) / blocks(torch.ones_like(cells)).sum((1, 3))).float()


class Server:
    """`regard view` in a process of its own."""

    def __init__(self, shelf: Path, cache: Path) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "regard", "view", "--no-open", "--cache", str(cache)]
        self.process = subprocess.Popen(
            [*command, str(shelf)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"regard is at (http://\S+?)/?\s", line):
                self.address = urlsplit(found[1]).netloc
                return
        raise AssertionError("the server did not start")

    def recordings(self) -> dict[int, str]:
        """The names of the recordings by their numbers of tokens."""
        connection = http.client.HTTPConnection(self.address)
        connection.request("GET", "/api/recordings")
        found = json.loads(connection.getresponse().read())["recordings"]
        connection.close()
        return {one["tokens"]: one["id"] for one in found}

    def close(self) -> int:
        """End it as Ctrl-C does; its exit status."""
        self.process.send_signal(2)
        status = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status
