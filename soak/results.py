"""`soak/results.json`: of each program its last full run, with the command that repeats it."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "commit", "note", "read"]

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results.json")

Counts = dict[str, Any]


def read(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What has been run so far, by the name of the program."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def note(name: str, command: str, counts: Counts, path: Path = RESULTS) -> None:
    """Put the counts of a run in the place of those of the run before."""
    found = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "command": command,
        "counts": counts,
    }
    everything = {**read(path), name: found}
    path.write_text(json.dumps(dict(sorted(everything.items())), indent=2) + "\n", encoding="utf-8")


def commit() -> str:
    """The commit that was run; with a plus where the sources were changed since."""

    def said(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return said("rev-parse", "--short", "HEAD") + ("+" if said("status", "--porcelain", "src") else "")
