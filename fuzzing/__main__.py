"""`python -m fuzzing`: fuzz for some minutes, or run what failed again.

python -m fuzzing --minutes 30
python -m fuzzing --minutes 5 --only masks indexing --seed 7
python -m fuzzing --replay masks:123456789
python -m fuzzing --replay                     everything that was saved
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import signal
import sys
import time
from pathlib import Path

from fuzzing import ROOT
from fuzzing.driver import Driver
from fuzzing.failures import Failures, named
from fuzzing.results import Results
from fuzzing.targets import TARGETS
from fuzzing.worker import Found, attempt

FAILURES = ROOT / ".fuzzing"


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if nothing failed."""
    given = _parser().parse_args(arguments)
    failures = Failures(given.failures)
    if given.list:
        for target in TARGETS.values():
            print(f"{target.name:12} {target.about}")
        return 0
    if given.replay is not None:
        return replay([named(text) for text in given.replay or map(str, failures)])
    return fuzz(given, failures)


def fuzz(given: argparse.Namespace, failures: Failures) -> int:
    """Fuzz for the given time, with a line of progress every few seconds."""
    # Also where a shell has started this in the background, and where it is told to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    base = secrets.randbits(32) if given.seed is None else given.seed
    targets = {name: TARGETS[name] for name in given.only or TARGETS}
    command = shlex.join(["python", "-m", "fuzzing", *sys.argv[1:]])
    results = None if given.results is None else Results(given.results, command, base)
    start = time.monotonic()

    def tell(driver: Driver) -> None:
        minutes = (time.monotonic() - start) / 60
        if results is not None:
            results.write(minutes, dict(driver.cases), dict(driver.found))
        counts = "  ".join(
            f"{name} {count:,}" + (f" ({driver.found[name]} failed)" if driver.found[name] else "")
            for name, count in sorted(driver.cases.items())
        )
        total, failed = sum(driver.cases.values()), sum(driver.found.values())
        print(f"{minutes:6.1f} min  {total:>10,} cases  {failed} failed  |  {counts}", flush=True)

    print(f"seed {base}; failures are saved in {failures.folder}", flush=True)
    driver = Driver(targets, base, given.jobs, failures, tell)
    try:
        driver.run(given.minutes * 60)
    except KeyboardInterrupt:
        print("stopped; what was counted and found is kept.")
    for name, count in driver.found.items():
        if count:
            print(f"{name}: {count} failed; python -m fuzzing --replay runs what was saved.")
    return int(sum(driver.found.values()) > 0)


def replay(reproducers: list[tuple[str, int]]) -> int:
    """Run failures again, in this process, with their tracebacks."""
    failed = 0
    for name, seed in reproducers:
        found = attempt(TARGETS[name].check, name, seed)
        failed += isinstance(found, Found)
        print(f"{name}:{seed} {'fails' if isinstance(found, Found) else 'passes'}")
        if isinstance(found, Found):
            print(found.text)
    print(f"{failed} of {len(reproducers)} fail.")
    return int(failed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m fuzzing", description="Look for wrong answers at random.")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (1)")
    parser.add_argument(
        "--only", nargs="+", choices=list(TARGETS), metavar="TARGET", help="these targets alone"
    )
    parser.add_argument("--seed", type=int, help="makes the same cases again (a new one each time)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument(
        "--replay", nargs="*", metavar="WHAT", help="target:seed or a saved file; without any, all saved"
    )
    parser.add_argument("--failures", type=Path, default=FAILURES, help="where failures are saved (.fuzzing)")
    parser.add_argument("--results", type=Path, help="a table to add this run to, as fuzzing/results.json")
    parser.add_argument("--list", action="store_true", help="say which targets there are")
    return parser


if __name__ == "__main__":
    sys.exit(main())
