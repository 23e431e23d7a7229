"""Mutants on trial: tests are imported once, and each mutant meets them in a process of its own.

The processes are forks of one that has collected the tests and run none. A mistake is put in by giving the
functions that have it their new code, so nothing is imported twice. Tests that hang are killed.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

from mutating import ROOT
from mutating.mutants import Mutant

__all__ = ["try_all"]

Tell = Callable[[str, str], None]
# How a process ends that has run no test: no function has the mistake, or it could not be put in.
NOWHERE, UNTRIED = 93, 94
VERDICTS = {0: "survived", NOWHERE: "left out", UNTRIED: "untried"}


def try_all(mutants: Sequence[Mutant], tests: Sequence[str], limit: float, tell: Tell) -> bool:
    """Try mutants with these tests, and tell the verdict of each; False if tests fail without a mistake.

    A mutant is "killed" where a test fails, "survived" where all pass, "hung" where they take too long.
    """
    pid = os.fork()
    if pid == 0:
        import pytest

        _end_with_parent()
        trials = _Trials(mutants, limit, tell)
        _be_quiet()
        os.chdir(ROOT)
        os.environ["CI"] = "1"  # every mutant meets the same examples
        pytest.main(
            ["-p", "no:cacheprovider", "--exhaustive", "-m", "not slow and not long", *tests],
            plugins=[trials],
        )
        os._exit(0 if trials.sound else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class _Trials:
    """A plugin of pytest: in place of its loop over tests, one such loop for every mutant."""

    def __init__(self, mutants: Sequence[Mutant], limit: float, tell: Tell) -> None:
        self.mutants, self.limit, self.tell = mutants, limit, tell
        self.sound = False

    def pytest_runtestloop(self, session: Any) -> bool:
        self.sound = bool(session.items) and not session.testsfailed and self._tried(session) == "survived"
        for mutant in self.mutants if self.sound else ():
            self.tell(mutant.name, self._tried(session, mutant))
        return True

    def _tried(self, session: Any, mutant: Mutant | None = None) -> str:
        child = os.fork()
        if child == 0:
            os.setsid()
            _end_with_parent()
            code = UNTRIED
            try:
                code = NOWHERE if mutant is not None and not _put_in(mutant) else _run(session)
            finally:
                os._exit(code)
        deadline = time.monotonic() + self.limit
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return VERDICTS.get(os.waitstatus_to_exitcode(status), "killed")
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hung"


def _run(session: Any) -> int:
    """Run the tests until one fails."""
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _put_in(mutant: Mutant) -> bool:
    """Give the functions of a file the code they have in the mutant; False where none has the mistake."""
    path = str(ROOT / mutant.path)
    before = _codes(compile(mutant.original, path, "exec"))
    after = _codes(compile(mutant.source, path, "exec"))
    changed = {name for name in after if name in before and not _same(before[name], after[name])}
    found = False
    # The tests hide from the collector what they have imported.
    gc.unfreeze()
    # By type(): isinstance asks proxies for a class that they may not have.
    for function in [x for x in gc.get_objects() if type(x) is FunctionType]:
        code = function.__code__
        if code.co_filename == path and code.co_qualname in changed:
            other = after[code.co_qualname]
            if len(other.co_freevars) == len(code.co_freevars):
                function.__code__ = other
                found = True
    return found


def _codes(module: CodeType) -> dict[str, CodeType]:
    """The code of every function of a file, by its name in it."""
    found: dict[str, CodeType] = {}
    for code in (x for x in module.co_consts if isinstance(x, CodeType)):
        found[code.co_qualname] = code
        found |= _codes(code)
    return found


def _same(one: CodeType, other: CodeType) -> bool:
    """Whether two pieces of code do the same; where they stand in the file does not matter."""
    plain = [(x.co_code, x.co_names, x.co_varnames, x.co_freevars) for x in (one, other)]
    if plain[0] != plain[1] or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else repr(a) == repr(b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _end_with_parent() -> None:
    """Have Linux kill this process when the one that made it ends, so that an interrupted run leaves none."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _be_quiet() -> None:
    sys.stdout.flush()
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
