"""A file and a name, examined in a process of its own that may raise, hang or print as it likes."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from regard.doctor.adapter import LAYOUTS
from regard.doctor.diagnosis import Diagnosis
from regard.doctor.finding import Finding
from regard.errors import RegardError

__all__ = ["examine_file"]

SHOWN = 200


def examine_file(path: Path, name: str, *, timeout: float = 60.0, **options: Any) -> Diagnosis:
    """Examine what a file calls `name`: a function, a module, or a class of modules that needs no arguments.

    The file's code runs in a subprocess, which is ended after `timeout` seconds.
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
        order = json.dumps(
            {"path": str(path.resolve()), "name": name, "options": options, "result": str(result)}
        )
        code, printed, said = _run([sys.executable, "-m", "regard.doctor.isolated", order], timeout)
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
    if "diagnosis" not in found:
        last = said.strip().splitlines()[-1] if said.strip() else f"the process ended with status {code}"
        return Diagnosis(label, (Finding("raises", found.get("raises", last)),), _prints(printed))
    seen = Diagnosis.from_dict(found["diagnosis"])
    return Diagnosis(label, seen.findings, (*seen.notes, *_prints(printed)), seen.reading)


def _run(command: list[str], timeout: float) -> tuple[int | None, str, str]:
    """The exit status (None: out of time), and what was printed."""
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
        # Ctrl-C is for this process: the child has a session of its own, and would go on.
        _kill(started)
        started.communicate()
        raise


def _kill(started: subprocess.Popen[str]) -> None:
    """End the child and its own children: a pool of workers would hold the pipe open."""
    if hasattr(os, "killpg"):
        os.killpg(started.pid, signal.SIGKILL)
    else:
        started.kill()


def _environment() -> dict[str, str]:
    """The same regard for the child, wherever it was imported from."""
    source = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))}


def _prints(printed: str) -> tuple[str, ...]:
    lines = printed.strip().splitlines()
    return (f"it prints {len(lines)} lines, the first: {lines[0][:SHOWN]!r}",) if lines else ()


def _child(order: dict[str, Any]) -> None:
    """What the subprocess does; what it found goes into a file, since standard output is the subject's."""
    path, result = Path(order["path"]), Path(order["result"])
    try:
        found = _examine(path, order["name"], order["options"])
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)
        at = next(
            (f", {path.name} line {frame.lineno}" for frame in reversed(last) if frame.filename == str(path)),
            "",
        )
        kind = "" if isinstance(error, RegardError) else f"{type(error).__name__}: "
        found = {"raises": f"{kind}{error}{at}"}
    result.write_text(json.dumps(found), encoding="utf-8")


def _examine(path: Path, name: str, options: dict[str, Any]) -> dict[str, Any]:
    from regard.doctor.examine import examine

    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RegardError(f"{path.name} is no Python file. Name one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == path.stem]
        return {"missing": own}
    thing: Any = getattr(module, name)
    made: Any = thing() if inspect.isclass(thing) else thing
    return {"diagnosis": examine(made, **options).as_dict()}


if __name__ == "__main__":
    _child(json.loads(sys.argv[1]))
