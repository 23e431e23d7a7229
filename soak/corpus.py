"""Corpus runs in which workers and drivers are killed: the bytes must be those of an undisturbed run.

Each round runs the corpus in two processes whose workers are killed (SIGKILL) ten times at random moments,
and again with a driver that is killed five times and resumed. Then every file must be equal to the byte, and
every document must have been counted once.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from regard import corpus
from regard.corpus.engines import processes

__all__ = ["corpora"]

DOCUMENTS, KILLS, DRIVERS = 40, 10, 5
SETTINGS = corpus.Settings(shard=4, batch=200)
RUN = """
import sys
from regard import corpus
corpus.run("bundled", sys.argv[1], sys.argv[2], settings=corpus.Settings(shard=4, batch=200),
           resume=sys.argv[3] == "True")
"""


def corpora(count: int, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Run so many rounds; raises AssertionError at the first byte that differs."""
    texts, chance = _texts(folder), random.Random(seed)
    whole = corpus.run("bundled", texts, folder / "whole.corpus", settings=SETTINGS)
    assert whole is not None
    assert whole.documents == DOCUMENTS, "an undisturbed run lost documents"
    wanted = _digests(folder / "whole.corpus")
    kills = drivers = 0
    for _ in range(count):
        kills += _with_dying_workers(texts, folder / "workers.corpus", chance)
        assert _digests(folder / "workers.corpus") == wanted, "killed workers changed the result"
        drivers += _with_dying_drivers(texts, folder / "drivers.corpus", chance)
        assert _digests(folder / "drivers.corpus") == wanted, "killed drivers changed the result"
        for name in ("workers.corpus", "drivers.corpus"):
            shutil.rmtree(folder / name)
    return {
        "rounds": count,
        "documents": DOCUMENTS,
        "workers killed": kills,
        "drivers killed": drivers,
        "bytes that differ": 0,
    }


def _texts(folder: Path) -> Path:
    from regard.models import sample_text

    story, path = sample_text(), folder / "texts.jsonl"
    parts = [story[97 * i : 97 * i + 150 + 13 * (i % 7)] for i in range(DOCUMENTS)]
    path.write_text("".join(json.dumps({"text": part}) + "\n" for part in parts), encoding="utf-8")
    return path


def _with_dying_workers(texts: Path, output: Path, chance: random.Random) -> int:
    """A worker dies when it answers, with some chance, until ten have."""
    kills, taken = 0, processes._take

    def take(process: Any, *rest: Any) -> None:
        nonlocal kills
        taken(process, *rest)
        if kills < KILLS and chance.random() < 0.3:
            kills += 1
            os.kill(process.process.pid, signal.SIGKILL)

    processes._take = take
    try:
        corpus.run("bundled", texts, output, engine="processes", workers=2, settings=SETTINGS)
    finally:
        processes._take = taken
    return kills


def _with_dying_drivers(texts: Path, output: Path, chance: random.Random) -> int:
    """A driver dies some time after its first new shard; the last one may finish."""
    for kill in range(DRIVERS):
        before = _done(output)
        command = [sys.executable, "-c", RUN, str(texts), str(output), str(kill > 0)]
        driver = subprocess.Popen(command)
        while driver.poll() is None and _done(output) <= before:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        driver.kill()
        driver.wait()
    corpus.run("bundled", texts, output, settings=SETTINGS, resume=True)
    return DRIVERS


def _done(output: Path) -> int:
    return len([f for f in (output / "shards").glob("*.json") if not f.name.startswith(".")])


def _digests(folder: Path) -> dict[str, str]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
