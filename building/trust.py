"""docs/trust.md, made of what was run: `python -m building.trust`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["page"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "trust.md"

HEAD = """\
# Why trust it

What was tested beyond the test suite, how often, and with what result. The command beside each figure
writes the file that it comes from, and `python -m building.trust` makes this page of these files. [How
exact](exactness.md) the numbers are is measured separately.
"""
# What each program of `python -m soak` does, in a sentence.
SOAK = {
    "tiles": "Clients ask a server for random tiles, each again as soon as it has an answer",
    "kills": "Recordings are killed (SIGKILL) at random points, opened again and resumed",
    "disk": "Recordings are written where there is no room, over an old one and into nothing",
    "memory": "Memory runs out in the middle of a pass, and the call is made again",
    "cycles": "A text is recorded to disk, opened and read, in one process",
    "threads": "Threads read one map at once, each in its own order",
    "repeats": "One call with its gradients and statistics, compared bit for bit",
}


# Verdicts about a mistake that ran, and what the page calls them.
TRIED = {"killed": "noticed", "hung": "tests ran out of time", "survived": "survived"}


def page(root: Path = ROOT) -> str:
    """The page as text, from the files of a checkout."""
    return "\n".join([HEAD, _soak(root), _fuzzing(root), _peers(root), _mutations(root)])


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _soak(root: Path) -> str:
    lines = [
        "## Long runs and injected faults\n",
        "| | counted | command | date, commit |",
        "| --- | --- | --- | --- |",
    ]
    for name, run in _read(root / "soak" / "results.json").items():
        counted = "; ".join(f"{what} {_number(n)}" for what, n in run["counts"].items())
        counted += f".{_noted(run)}" if "note" in run else ""
        lines.append(f"| {SOAK[name]} | {counted} | `{run['command']}` | {run['date']}, {run['commit']} |")
    return "\n".join([*lines, ""])


def _fuzzing(root: Path) -> str:
    found = _read(root / "fuzzing" / "results.json")
    lines = ["## Fuzzing\n"]
    if not found:
        return "\n".join([*lines, "No run is kept yet: `python -m fuzzing --minutes 30`.\n"])
    failures = sum(sum(run["failures"].values()) for run in found["runs"])
    lines.append(
        f"{_number(found['all_cases'])} cases in {len(found['runs'])} runs against oracles and laws. "
        f"{_number(failures)} failed in these runs; {len(found['mended'])} causes, found in them or while "
        f"targets were written, are mended. {found.get('what_a_case_is', '')}".rstrip()
        + "\n"
    )
    lines += ["| target | cases |", "| --- | ---: |"]
    lines += [f"| {target} | {_number(cases)} |" for target, cases in found["cases"].items()]
    runs = [f"`{run['command']}` ({run['date']}, {run['commit']})" for run in found["runs"]]
    lines += ["", "The runs: " + "; ".join(dict.fromkeys(runs)) + "."]
    if found["mended"]:
        lines += ["", "Mended:", ""]
        lines += [
            f"- {one if isinstance(one, str) else ', '.join(map(str, one.values()))}"
            for one in found["mended"]
        ]
    return "\n".join([*lines, ""])


def _peers(root: Path) -> str:
    """ONNX's own cases: how many there are, and how many the tests leave out of each route."""
    lines = ["## Peers' own tests\n"]
    if not (root / "tests" / "peers").exists():
        return "\n".join([*lines, "Not run yet.\n"])
    sys.path[:0] = [str(root / "tests"), str(root / "src")]
    try:
        from peers.onnx_cases import CASES
        from peers.test_onnx import NOT_RUN
    finally:
        del sys.path[:2]
    lines.append(
        f"The `onnx` package ships {len(CASES)} cases for its attention operators. They run through each of "
        "these, but for those that `tests/peers/test_onnx.py` lists with the reason: `pytest tests/peers`.\n"
    )
    lines += ["| through | cases | left out |", "| --- | ---: | ---: |"]
    lines += [f"| `{route}` | {len(CASES) - len(out)} | {len(out)} |" for route, out in NOT_RUN.items()]
    return "\n".join([*lines, ""])


def _mutations(root: Path) -> str:
    found = _read(root / "mutating" / "results.json")
    lines = ["## Mutations\n"]
    if not found:
        return "\n".join([*lines, "No run is kept yet.\n"])
    tried = {name: sum(n for verdict, n in x.items() if verdict in TRIED) for name, x in _packages(found)}
    lines.append(
        "Do the tests notice a mistake in the code? One mistake at a time is put into a function, and the "
        f"fast tests of that file are run. {_number(sum(tried.values()))} mistakes were tried, a sample; "
        f"{_number(len(found['survived']))} survived. [mutation.md](mutation.md) says of each survivor what "
        "came of it. "
        f"`{found['command']}` ({found['date']}, {found['commit']}).{_noted(found)}\n"
    )
    lines += ["| package | tried | " + " | ".join(TRIED.values()) + " |", "| --- |" + " ---: |" * 4]
    for name, counted in _packages(found):
        cells = [tried[name], *(counted.get(verdict, 0) for verdict in TRIED)]
        lines.append(f"| `{name}` | {' | '.join(map(_number, cells))} |")
    return "\n".join([*lines, ""])


def _noted(run: dict[str, Any]) -> str:
    return f" {run['note']}." if "note" in run else ""


def _packages(found: dict[str, Any]) -> list[tuple[str, dict[str, int]]]:
    return list(found["packages"].items())


def _number(n: Any) -> str:
    return f"{n:,}" if isinstance(n, int) else str(n)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
