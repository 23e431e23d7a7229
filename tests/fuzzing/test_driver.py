"""The driver counts what is checked, and loses no failure: not of a check that raises, crashes or hangs."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from fuzzing import __main__ as program
from fuzzing.driver import Driver, Hand
from fuzzing.failures import ALIKE, Failures, named
from fuzzing.results import Results
from fuzzing.target import Target, seed_of
from fuzzing.worker import Finished, Found, Note, Place, _turn, attempt
from mortal_worker import mortal


class Link:
    """Stands in for the pipe to the driver."""

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)


class Shared:
    value = b""


class Process:
    """Stands in for a process, and for the pipe to it."""

    def __init__(self):
        self.did = []

    def kill(self):
        self.did.append("kill")

    def join(self):
        self.did.append("join")

    def close(self):
        self.did.append("close")


def wrong_for_odd_seeds(seed: int) -> int:
    assert seed % 2 == 0, "odd"
    return 10


def test_seeds_are_those_of_the_run_the_target_and_the_number():
    seeds = {seed_of(base, name, n) for base in range(3) for name in ("a", "b") for n in range(50)}
    assert len(seeds) == 300
    assert seed_of(1, "a", 2) == seed_of(1, "a", 2)


def test_a_failed_check_is_found_with_its_seed_and_its_traceback():
    assert attempt(wrong_for_odd_seeds, "odd", 2) == 10
    found = attempt(wrong_for_odd_seeds, "odd", 3)
    assert isinstance(found, Found)
    assert (found.target, found.seed) == ("odd", 3)
    assert found.kind == "AssertionError in test_driver.py:wrong_for_odd_seeds: assert (0 % 0) == 0"
    assert "assert seed % 2 == 0" in found.text


def test_a_turn_counts_its_cases_and_tells_failures_as_they_come(monkeypatch):
    clock = iter([0.0, *[0.1] * 6, 9.0])
    monkeypatch.setattr("fuzzing.worker.time.monotonic", lambda: next(clock))
    link, note = Link(), Note(Shared())
    target = Target("odd", "", wrong_for_odd_seeds, tested=1)
    number = _turn(link, note, target, Place(7, 2, {"odd": 1}), 1)
    *found, finished = link.sent
    odd = [seed for n in range(1, 13, 2) if (seed := seed_of(7, "odd", n)) % 2]
    assert [one.seed for one in found] == odd
    assert finished == Finished("odd", 10 * (6 - len(odd)) + len(odd), 13)
    assert 0 < len(odd) < 6
    assert number == 13
    assert note.read() == ("odd", 11)


def test_a_failure_is_a_file_that_names_its_reproducer(tmp_path):
    failures = Failures(tmp_path / "new")
    path = failures.save(Found("odd", 3, "kind", "text"))
    assert path is not None
    assert named(str(path)) == named("odd:3") == ("odd", 3)
    assert list(failures) == [path]


def test_of_failures_that_look_alike_a_few_are_kept(tmp_path):
    failures = Failures(tmp_path)
    kept = [failures.save(Found("odd", seed, "kind", "text")) for seed in range(20)]
    assert len([path for path in kept if path]) == ALIKE
    assert failures.save(Found("odd", 99, "another kind", "text"))


def test_what_is_no_reproducer_is_refused_in_words():
    with pytest.raises(
        SystemExit, match=r"^odd is no reproducer; wanted a \.json file .*, or target:seed\.$"
    ):
        named("odd")


def test_a_worker_that_dies_is_a_failure_and_another_goes_on(tmp_path, monkeypatch):
    """With real processes: every third check kills its worker, and the next goes on with the fourth."""
    monkeypatch.setattr("fuzzing.driver.work", mortal)
    monkeypatch.setattr("fuzzing.driver.TELL_S", 0.0)

    def tell(driver):
        if driver.found["dies"] == 2:
            raise KeyboardInterrupt

    driver = Driver({"dies": Target("dies", "", print, tested=1)}, 5, 1, Failures(tmp_path), tell)
    with pytest.raises(KeyboardInterrupt):
        driver.run(600.0)
    saved = [json.loads(path.read_text()) for path in Failures(tmp_path)]
    assert {one["seed"] for one in saved} == {seed_of(5, "dies", 2), seed_of(5, "dies", 5)}
    assert {one["text"] for one in saved} == {f"the worker died: exit code {-signal.SIGKILL}"}
    assert driver.cases["dies"] == 6


def test_a_worker_that_hangs_is_killed_and_its_check_is_a_failure(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("fuzzing.driver.time.monotonic", lambda: clock[0])
    driver = Driver({"hangs": Target("hangs", "", print, 1)}, 5, 1, Failures(tmp_path), print, hang_s=60.0)
    monkeypatch.setattr(driver, "_hired", lambda numbers: numbers)
    hand = Hand(Process(), Process(), Note(Shared()), {"hangs": 0}, since=0.0)
    hand.note.write("hangs", 0)
    assert driver._watched(hand) is hand
    clock[0] = 50.0
    assert driver._watched(hand) is hand
    hand.note.write("hangs", 1)
    clock[0] = 100.0
    assert driver._watched(hand) is hand
    clock[0] = 161.0
    assert driver._watched(hand) == {"hangs": 2}
    assert hand.process.did == ["kill", "join"]
    (saved,) = [json.loads(path.read_text()) for path in Failures(tmp_path)]
    assert (saved["seed"], saved["text"]) == (seed_of(5, "hangs", 1), "the check took more than 60 s")


def test_the_table_of_results_adds_runs_up_and_keeps_what_was_mended(tmp_path):
    path = tmp_path / "results.json"
    first = Results(path, "python -m fuzzing", 1)
    first.write(0.5, {"masks": 5}, {})
    first.write(1.0, {"masks": 10, "indexing": 1}, {"masks": 1})
    said = json.loads(path.read_text())
    said["mended"].append({"target": "masks", "what": "something"})
    path.write_text(json.dumps(said))
    Results(path, "python -m fuzzing --only masks", 2).write(2.0, {"masks": 32}, {})
    said = json.loads(path.read_text())
    assert said["all_cases"] == 43
    assert said["cases"] == {"indexing": 1, "masks": 42}
    assert [run["seed"] for run in said["runs"]] == [1, 2]
    assert said["runs"][0]["failures"] == {"masks": 1}
    assert said["mended"] == [{"target": "masks", "what": "something"}]


def test_the_committed_table_adds_up_and_names_targets_that_exist():
    said = json.loads((program.ROOT / "fuzzing" / "results.json").read_text(encoding="utf-8"))
    total = Counter()
    for run in said["runs"]:
        total.update(run["cases"])
        assert {"date", "commit", "command", "seed", "minutes", "failures"} <= {*run}
    assert said["cases"] == dict(total)
    assert said["all_cases"] == total.total()
    assert {*said["cases"]} <= {*program.TARGETS}
    assert {one["target"] for one in said["mended"]} <= {*program.TARGETS}


def test_replay_runs_what_was_saved_again_and_says_whether_it_fails(tmp_path, monkeypatch, capsys):
    target = Target("odd", "", wrong_for_odd_seeds, tested=1)
    monkeypatch.setattr(program, "TARGETS", {"odd": target})
    failures = Failures(tmp_path)
    for seed in (3, 4):
        failures.save(Found("odd", seed, "kind", "text"))
    assert program.main(["--failures", str(tmp_path), "--replay"]) == 1
    said = capsys.readouterr().out
    assert "odd:3 fails" in said
    assert "odd:4 passes" in said
    assert "1 of 2 fail." in said
    assert program.main(["--replay", "odd:4"]) == 0
