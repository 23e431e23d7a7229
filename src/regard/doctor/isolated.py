"""Examines an object of a file in a subprocess, which may crash, hang or print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.doctor.diagnosis import Diagnosis
from regard.doctor.finding import Finding
from regard.doctor.layouts import LAYOUTS
from regard.errors import InternalError, RegardError

__all__ = ["examine_file"]

SHOWN = 200


def examine_file(
    path: Path, name: str, *, timeout: float = 60.0, given: dict[str, Any] | None = None, **options: Any
) -> Diagnosis:
    """Examine the object `name` of a file: a function, a module, or a module class.

    The file's code runs in a subprocess, which is killed after `timeout` seconds. A class is instantiated
    with the arguments in `given` and small guesses for the others.
    """
    if not path.is_file():
        raise RegardError(
            f"there is no file {path}. Name a Python file and what is in it: file.py:attention."
        )
    if timeout <= 0:
        raise RegardError(f"timeout={timeout:g} is no time at all; wanted seconds, more than 0.")
    layout = options.get("layout")
    if layout is not None and layout not in LAYOUTS:
        raise RegardError(f"layout={layout!r} is not known; wanted one of {', '.join(LAYOUTS)}.")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        order = {"path": str(path.resolve()), "name": name, "options": options, "given": given or {}}
        command = [sys.executable, "-m", "regard.doctor.child", json.dumps({**order, "result": str(result)})]
        code, printed, said = _run(command, timeout)
        found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    label = f"{path.name}:{name}"
    if code is None:
        return Diagnosis(
            label, (Finding("hangs", f"it was still running after {timeout:g} seconds"),), _prints(printed)
        )
    if "missing" in found:
        raise RegardError(
            f"{path} has no {name!r}; it has {', '.join(found['missing']) or 'nothing to examine'}."
        )
    if "refused" in found:
        raise RegardError(found["refused"])
    if "internal" in found:
        raise InternalError(found["internal"])
    if "diagnosis" not in found:
        last = said.strip().splitlines()[-1] if said.strip() else _ended(code)
        return Diagnosis(label, (Finding("raises", found.get("raises", last)),), _prints(printed))
    seen = Diagnosis.from_dict(found["diagnosis"])
    return replace(seen, name=label, notes=(*seen.notes, *_prints(printed)))


def _run(command: list[str], timeout: float) -> tuple[int | None, str, str]:
    """The exit status (None after a timeout), and the printed output."""
    started = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", start_new_session=True, env=_environment(),
    )  # fmt: skip
    try:
        printed, said = started.communicate(timeout=timeout)
        return started.returncode, printed, said
    except subprocess.TimeoutExpired:
        _kill(started)
        printed, said = started.communicate()
        return None, printed, said
    except BaseException:
        # Ctrl-C reaches only this process: the child has its own session, so it must be killed.
        _kill(started)
        started.communicate()
        raise


def _ended(code: int) -> str:
    """A message about a process that ended without a result."""
    if code >= 0:
        return f"it ended the process with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"the process was ended by signal {name}"


def _kill(started: subprocess.Popen[str]) -> None:
    """Kill the child and its children: a pool of workers would keep the pipe open."""
    if hasattr(os, "killpg"):
        os.killpg(started.pid, signal.SIGKILL)
    else:
        started.kill()


def _environment() -> dict[str, str]:
    """The environment of the child, in which it imports this copy of regard."""
    source = str(Path(__file__).parents[2])
    # One thread: for tensors this small, more threads would only wait for each other.
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return {
        **os.environ,
        **threads,
        "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")])),
    }


def _prints(printed: str) -> tuple[str, ...]:
    lines = printed.strip().splitlines()
    many = "1 line" if len(lines) == 1 else f"{len(lines)} lines, the first"
    return (f"it prints {many}: {lines[0][:SHOWN]!r}",) if lines else ()
