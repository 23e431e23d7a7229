"""Processes that tests start. None of them outlives the tests, and none has a time limit.

`run`, `python` and `started` start a program. `forked` calls a function in another process: much cheaper,
because torch and transformers are imported once per test worker, by a fork server, and not once per process.
Use it where a test needs another process but not a fresh interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

__all__ = ["bound", "checkout", "forked", "python", "run", "started"]

SRC = Path(__file__).parents[1] / "src"
# What the fork server imports before its first fork. The first makes it end when the tests do.
PRELOADED = [
    "bound_to_tests",
    "torch",
    "torch.distributed",
    "transformers.models.llama.modeling_llama",
    "regard.corpus",
]


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


@contextmanager
def forked(function: Callable[..., None], *arguments: Any) -> Iterator[BaseProcess]:
    """A process that calls a function of an importable module while the block runs; then it is ended.

    It computes with one thread, as every test does, and ends when this process ends.
    """
    process = _fork_server().Process(target=_call, args=(function, arguments))  # pyright: ignore
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join()


@cache
def _fork_server() -> BaseContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():  # Windows
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    before = os.environ.copy()
    # The server takes over the environment that it is started in.
    os.environ.update(checkout(SRC.parent / "tests", REGARD_TESTS=str(os.getpid())))
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


def _call(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    function(*arguments)


def _end_with_parent() -> None:
    """Wait for the end of the test process. The fork server is in between, so a death signal would not do."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
