"""What every test can count on: one thread, one seed, and the program as a user runs it.

`gpu` tests run only where there is a GPU, `long` ones only with `-m long`, and those in APART only where they
are named: `make long` and `make kernels`. With `--exhaustive` every test there is runs, also those marked
`slow`, with all its parameters, also those that `share` leaves out, and four times the examples.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from bound import end_with
from effort import exhaust, in_share, is_exhaustive
from shape_checker import now

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

# What is imported and collected stays: nothing of it is garbage, now or later.
gc.disable()
# Test tensors are tiny: a thread pool costs more than it gives, and slow CI machines would trip deadlines.
torch.set_num_threads(1)


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
    "tests/distributed/",
    "tests/test_",
]


# What shares a browser and servers, and what shares ranks.
TOGETHER = ["tests/viewer/e2e/", "tests/distributed/"]


# What takes minutes runs where it is named, by targets of its own: kernels compiled for a GPU that is not
# there and run in an interpreter, every family of transformers, examples that train.
TESTS = Path(__file__).parent
APART = [TESTS / "engine/triton", TESTS / "models/test_parity.py", TESTS / "examples/test_classic.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="run long and slow tests, too, and every parameter"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A run that is ended by a signal leaves no process behind."""
    exhaust(config.getoption("exhaustive"))
    now.everything = is_exhaustive()
    if hasattr(config, "workerinput"):
        end_with(os.getppid())
    else:
        # As Ctrl-C does: fixtures stop what they have started, workers are sent home.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path not in APART or is_exhaustive():
        return None
    named = (config.invocation_params.dir / arg.partition("::")[0] for arg in config.args)
    return True if not any(path.is_relative_to(collection_path) for path in named) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Tests hold no doctests: to look for them, what tests share would be imported once more."""
    return [file for file in (yield) if type(file) is pytest.Module]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = [*enumerate(LONG), (len(LONG), "")]
    items.sort(key=lambda item: next(i for i, path in places if item.nodeid.startswith(path)))
    left_out = set() if is_exhaustive() else _left_out(config.getoption("markexpr"), items)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _left_out(asked: str, items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests that only --exhaustive, or a marker that is asked for, brings in."""
    found = {item for item in items for mark in ("long", "slow") if mark not in asked and _has(item, mark)}
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item not in found:
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for tests in functions.values():
        if mark := tests[0].get_closest_marker("share"):
            chosen = [item for item in tests if in_share(item.nodeid, mark.args[0])]
            found |= {*tests} - {*(chosen or tests[:1])}
    return found


def _has(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """One worker does all tests of a file, which share what is slow to make; and all tests of TOGETHER.

    So the page's servers start once, and browsers do not wait for one another.
    """
    from xdist.scheduler import LoadScopeScheduling

    # In the order of LONG, and not those with most tests first.
    config.option.loadscopereorder = False

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((place for place in TOGETHER if file.startswith(place)), file)

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
    now.test += 1
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
