"""`python -m mutating`: break the core in some places, and count the mistakes that no test notices.

python -m mutating --sample 60 --seed 1                 60 mutants of every package
python -m mutating --sample 100 --only masks stats      of these packages
python -m mutating --only masks --file pairs.py         every mutant of one file, unless --sample says fewer
python -m mutating --again                              those that survived, after the tests were mended
python -m mutating --sample 60 --seed 1 --keep          write the counts to mutating/results.json, too

Verdicts go to .mutating/verdicts.jsonl. A run that is interrupted goes on where it was: a mutant that has a
verdict is not tried again as long as its line is what it was.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

from mutating import ROOT
from mutating.mutants import Mutant, mutants_of
from mutating.results import note, package_of
from mutating.suites import PACKAGES, files_of, suite_of
from mutating.trial import try_all

HOME = ROOT / ".mutating"


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if no mutant survived."""
    given = _parser().parse_args(arguments)
    verdicts = HOME / "verdicts.jsonl"
    known = _read(verdicts)
    chosen = [mutant for package in given.only for mutant in _chosen(package, given)]
    if given.again:
        survivors = {name for name, verdict in known.items() if verdict == "survived"}
        everything = [m for p in PACKAGES for f in files_of(p) for m in _mutants(f)]
        chosen = [mutant for mutant in everything if mutant.name in survivors]
        known = {name: verdict for name, verdict in known.items() if name not in survivors}

    def tell(name: str, verdict: str) -> None:
        _write(verdicts, name, verdict)

    unsound: list[Mutant] = []
    try:
        for tests, group in _by_tests([mutant for mutant in chosen if mutant.name not in known]).items():
            if not try_all(group, tests, given.limit, tell):
                unsound += group
                print(f"these tests fail without any mistake, or hang: {' '.join(tests)}", flush=True)
    finally:
        if given.keep:
            # A run that is stopped has tried fewer, and says so.
            verdicts_of = _read(verdicts)
            names = [mutant.name for mutant in chosen]
            note(_command(arguments), {name: verdicts_of.get(name, "untried") for name in names})
    known |= _read(verdicts) | {mutant.name: "untried" for mutant in unsound}
    counts: dict[str, Counter[str]] = {}
    for mutant in chosen:
        verdict = known.get(mutant.name, "untried")
        counts.setdefault(package_of(mutant.path), Counter())[verdict] += 1
        if verdict == "survived":
            print(f"survived  {mutant.name}", flush=True)
    for package, counted in counts.items():
        said = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counted.items()))
        print(f"{package:8} {counted.total():5} mutants: {said}")
    return 0 if not unsound and not any(c["survived"] for c in counts.values()) else 1


def _by_tests(mutants: list[Mutant]) -> dict[tuple[str, ...], list[Mutant]]:
    found: dict[tuple[str, ...], list[Mutant]] = {}
    for mutant in mutants:
        found.setdefault(tuple(suite_of(mutant.path)), []).append(mutant)
    return found


def _chosen(package: str, given: argparse.Namespace) -> list[Mutant]:
    """A sample that is the same for the same seed; mutants of long files are as likely as others."""
    files = [path for path in files_of(package) if given.file in (None, path.rpartition("/")[2])]
    found = [mutant for path in files for mutant in _mutants(path)]
    if given.sample is None or given.sample >= len(found):
        return found
    return random.Random(f"{package} {given.seed}").sample(found, given.sample)


def _mutants(path: str) -> list[Mutant]:
    return mutants_of(path, (ROOT / path).read_text(encoding="utf-8"))


def _command(arguments: list[str] | None) -> str:
    return " ".join(["python -m mutating", *(sys.argv[1:] if arguments is None else arguments)])


def _read(verdicts: Path) -> dict[str, str]:
    if not verdicts.exists():
        return {}
    lines = verdicts.read_text(encoding="utf-8").splitlines()
    return {said["mutant"]: said["verdict"] for said in map(json.loads, lines)}


def _write(verdicts: Path, name: str, verdict: str) -> None:
    verdicts.parent.mkdir(exist_ok=True)
    with verdicts.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"mutant": name, "verdict": verdict}) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m mutating", description="Mutation check of the core.")
    parser.add_argument("--only", nargs="+", choices=PACKAGES, default=list(PACKAGES), help="these packages")
    parser.add_argument("--file", help="only files of this name")
    parser.add_argument("--sample", type=int, help="so many mutants of each package; all, unless given")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--keep", action="store_true", help="write the counts to mutating/results.json")
    parser.add_argument("--limit", type=float, default=600, help="seconds until tests count as hung")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    return parser


if __name__ == "__main__":
    sys.exit(main())
