"""`python -m soak tiles --minutes 10` and its like; the figures go to soak/results.json.

tiles    clients of random tiles            --clients 64, --minutes 10 or --requests N
kills    recordings killed at random points --count 1000
disk     file systems that are full         (as root also real ones)
memory   no memory in the middle of a pass  --count 200
cycles   recording and opening, for leaks   --count 10000
threads  threads that read one map          --count 16 --rounds 300
corpus   corpus runs with killed workers --count 1
repeats  one call, bit for bit the same     --count 10000 --device cuda
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from soak.results import note


def main(arguments: list[str]) -> None:
    """Run one program and note its counts."""
    given = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(given.folder or made)
        counts = _run(given, folder)
    command = " ".join(["python -m soak", *arguments])
    print(f"{command}: " + ", ".join(f"{name} {value}" for name, value in counts.items()))
    note(given.program, command, counts)


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m soak", description=__doc__, formatter_class=formatter)
    programs = parser.add_subparsers(dest="program", required=True)
    options: dict[str, dict[str, Any]] = {
        "tiles": {"clients": 64, "minutes": None, "requests": None},
        "kills": {"count": 1000, "seed": 0},
        "disk": {"step": 512},
        "memory": {"count": 200},
        "cycles": {"count": 10_000},
        "threads": {"count": 16, "rounds": 300},
        "corpus": {"count": 1, "seed": 0},
        "repeats": {"count": 10_000, "device": "cpu"},
    }
    for name, known in options.items():
        program = programs.add_parser(name)
        program.add_argument(
            "--folder", help="where to write; a folder of its own in place of a temporary one"
        )
        for option, value in known.items():
            kind = str if option == "device" else float if option == "minutes" else int
            program.add_argument(f"--{option}", type=kind, default=value)
    return parser


def _run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    if given.program == "tiles":
        from soak.tiles import tiles

        minutes = 10.0 if given.minutes is None and given.requests is None else given.minutes
        return tiles(given.clients, folder, requests=given.requests, minutes=minutes)
    if given.program == "kills":
        from soak.kills import kills

        return kills(given.count, folder, given.seed)
    if given.program == "disk":
        from soak.disk import disk

        return disk(folder, given.step)
    if given.program == "memory":
        from soak.memory import memory

        return memory(given.count)
    if given.program == "cycles":
        from soak.cycles import cycles

        return cycles(given.count, folder)
    if given.program == "threads":
        from soak.threads import threads

        return threads(given.count, given.rounds)
    if given.program == "corpus":
        from soak.corpus import corpora

        return corpora(given.count, folder, given.seed)
    from soak.repeats import repeats

    return repeats(given.count, given.device)


if __name__ == "__main__":
    main(sys.argv[1:])
