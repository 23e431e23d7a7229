"""Processes that tests start. None of them outlives the tests, and none has a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["bound", "checkout", "python", "run", "started"]

SRC = Path(__file__).parents[1] / "src"


def bound(*command: str | Path) -> list[str]:
    """The command as one that the kernel ends when this process dies."""
    shim = Path(__file__).with_name("bound.py")
    if os.name == "nt":  # there exec makes another process
        return [str(word) for word in command]
    return [sys.executable, "-I", "-S", str(shim), str(os.getpid()), *(str(word) for word in command)]


def checkout(*folders: Path, **more: str) -> dict[str, str]:
    """The environment of a process that reads this checkout, and computes with one thread."""
    paths = [str(SRC), *map(str, folders), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", **more}


def run(
    *command: str | Path, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, as text; what it prints is kept."""
    options = {"text": True, "capture_output": True, "check": False} | options
    return subprocess.run(bound(*command), env=env or checkout(), **options)


def python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a fresh interpreter that sees this checkout, as a user's would."""
    return run(sys.executable, *arguments, **options)


@contextmanager
def started(
    *command: str | Path, env: dict[str, str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process that runs while the block does; then it is asked to end, and waited for."""
    process = subprocess.Popen(bound(*command), env=env or checkout(), text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
