"""The table of what was tried: one entry a run, and the totals."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fuzzing import ROOT

__all__ = ["Results"]


class Results:
    """`results.json`: runs with their cases, totals by target; the rest is kept by hand."""

    def __init__(self, path: Path, command: str, seed: int) -> None:
        self.path = path
        self.before = self._read()
        self.run: dict[str, Any] = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": _commit(),
            "command": command,
            "seed": seed,
        }

    def write(self, minutes: float, cases: dict[str, int], failures: dict[str, int]) -> None:
        """Replace the table by one that has this run as it stands."""
        run = {**self.run, "minutes": round(minutes, 1), "cases": cases, "failures": failures}
        runs = [*self.before["runs"], run]
        total: Counter[str] = Counter()
        for one in runs:
            total.update(one["cases"])
        table = {
            **self.before,
            "all_cases": sum(total.values()),
            "cases": dict(sorted(total.items())),
            "runs": runs,
        }
        draft = self.path.with_suffix(".tmp")
        draft.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path)

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"mended": [], "runs": []}
        return json.loads(self.path.read_text(encoding="utf-8"))


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"
