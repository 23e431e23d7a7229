"""Failures on disk: each a small file that says how to see it again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from fuzzing.worker import Found

__all__ = ["Failures", "named"]

# Of failures that look alike so many are kept: a broken law fails thousands of times.
ALIKE = 5


class Failures:
    """A folder of reproducers, one JSON file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alike: Counter[str] = Counter()

    def save(self, found: Found) -> Path | None:
        """Write a failure down before anything else happens; None where enough like it are there."""
        self.alike[f"{found.target} {found.kind}"] += 1
        if self.alike[f"{found.target} {found.kind}"] > ALIKE:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{found.target}-{found.seed}.json"
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
        return path

    def __iter__(self) -> Iterator[Path]:
        return iter(sorted(self.folder.glob("*.json")))


def named(text: str) -> tuple[str, int]:
    """The target and the seed that a reproducer names: a file that was saved, or `target:seed`."""
    path = Path(text)
    if path.suffix == ".json":
        said = json.loads(path.read_text(encoding="utf-8"))
        return said["target"], said["seed"]
    match = re.fullmatch(r"([\w-]+):(\d+)", text)
    if match is None:
        raise SystemExit(f"{text} is no reproducer; wanted a .json file that was saved, or target:seed.")
    return match[1], int(match[2])
