"""`mutating/results.json`: the verdicts of the last kept run, counted, and the mistakes that survived."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from soak.results import commit

__all__ = ["RESULTS", "note", "package_of"]

RESULTS = Path(__file__).with_name("results.json")


def note(command: str, verdicts: Mapping[str, str], path: Path = RESULTS) -> None:
    """Keep what became of mutants, by their name."""
    counts: dict[str, Counter[str]] = {}
    for name, verdict in verdicts.items():
        counts.setdefault(package_of(name), Counter())[verdict] += 1
    found = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "command": command,
        "packages": {package: dict(sorted(counted.items())) for package, counted in sorted(counts.items())},
        "survived": sorted(name for name, verdict in verdicts.items() if verdict == "survived"),
        "hung": sorted(name for name, verdict in verdicts.items() if verdict == "hung"),
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def package_of(name: str) -> str:
    """The package that a mutant, or the path of its file, is of."""
    return name.split("/")[2]
