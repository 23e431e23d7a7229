"""What every test can count on: one thread, one seed, and the program as a user runs it.

`gpu` tests run only where there is a GPU, `long` and `slow` ones only with `-m long` and `-m slow`, and those
in APART only where they are named. `make kernels` and `make long` run them.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

from bound import end_with

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

# What is imported and collected stays: nothing of it is garbage, now or later.
gc.disable()
# Test tensors are tiny: a thread pool costs more than it gives, and slow CI machines would trip deadlines.
torch.set_num_threads(1)
# On CI every run draws the same examples, so that a change is judged by the change; elsewhere they are new.
settings.register_profile("regard", deadline=None, max_examples=30, derandomize="CI" in os.environ)
settings.load_profile("regard")


@pytest.fixture(autouse=True)
def _seed() -> None:
    # For every kind of device that is not there, torch.manual_seed writes down who asked, in milliseconds.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(0)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in an empty folder; gives its exit status, standard output and standard error."""
    from regard.cli import main

    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return command


# The longest files start first, so that no worker starts one at the end.
LONG = [
    "tests/viewer/e2e/",
    "tests/models/test_parity.py",
    "tests/examples/test_classic.py",
    "tests/commands/test_commands.py",
    "tests/examples/test_gallery.py",
    "tests/claims/test_verdicts.py",
    "tests/engine/",
    "tests/viewer/",
    "tests/docs/",
    "tests/report/",
]


# What takes minutes runs where it is named, by targets of its own: kernels compiled for a GPU that is not
# there and run in an interpreter, every family of transformers, examples that train.
TESTS = Path(__file__).parent
APART = [TESTS / "engine/triton", TESTS / "models/test_parity.py", TESTS / "examples/test_classic.py"]


def pytest_configure(config: pytest.Config) -> None:
    """A run that is ended by a signal leaves no process behind."""
    if hasattr(config, "workerinput"):
        end_with(os.getppid())
    else:
        # As Ctrl-C does: fixtures stop what they have started, workers are sent home.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path not in APART:
        return None
    named = (config.invocation_params.dir / arg.partition("::")[0] for arg in config.args)
    return True if not any(path.is_relative_to(collection_path) for path in named) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = [*enumerate(LONG), (len(LONG), "")]
    items.sort(key=lambda item: next(i for i, path in places if item.nodeid.startswith(path)))
    if "long" not in config.getoption("markexpr"):
        long = [item for item in items if item.get_closest_marker("long")]
        if long:
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if not item.get_closest_marker("long")]
    if "slow" not in config.getoption("markexpr"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow; runs with -m slow"))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """One worker does all tests of a file, which share what is slow to make; and all tests of the page.

    So its servers start once, and browsers do not wait for one another.
    """
    from xdist.scheduler import LoadScopeScheduling

    # In the order of LONG, and not those with most tests first.
    config.option.loadscopereorder = False

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "the page" if file.startswith("tests/viewer/e2e/") else file

        def remove_node(self, node: WorkerController) -> str | None:
            """A test in which a worker died has failed. It is not run again: another worker would die too."""
            for tests in self.assigned_work[node].values():
                for test, ended in tests.items():
                    if not ended:
                        tests[test] = True
                        super().remove_node(node)
                        return test
            return super().remove_node(node)

    return ByFile(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
