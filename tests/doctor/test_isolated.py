"""A file and a name: raising, hanging, printing, missing; and the command around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.doctor import isolated
from regard.doctor.isolated import examine_file
from regard.errors import RegardError

FILE = """
import torch

print("made by hand")


def attention(q, k, v):
    return (q @ k.mT).softmax(-1) @ v


def broken(q, k, v):
    return undefined(q)


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def here(monkeypatch, capfd):
    """The child's work in this process: a subprocess that loads torch takes seconds."""

    def run(command, timeout):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "modules", sys.modules)
            isolated._child(json.loads(command[-1]))
        sys.modules.pop("mine", None)
        return 0, capfd.readouterr().out, ""

    monkeypatch.setattr(isolated, "_run", run)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_an_interrupted_examination_ends_its_process(monkeypatch, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    hold = "import sys, time; held = open(sys.argv[1], 'w'); held.write('up'); held.flush(); time.sleep(1e6)"
    held = []

    def interrupted(self, **options):
        monkeypatch.undo()
        held.append(pipe.open())
        assert held[0].read(2) == "up"
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        isolated._run([sys.executable, "-c", hold, str(pipe)], 1e6)
    with held[0] as ended:
        assert ended.read() == ""  # nobody holds the pipe any more


def test_a_file_runs_in_a_process_of_its_own_and_what_it_prints_is_noted(file):
    before = set(sys.modules)
    found = examine_file(file, "attention", timeout=1e6)
    assert found.codes == ("missing-scale",)
    assert found.name == "mine.py:attention"
    assert found.notes[-1] == "it prints 1 lines, the first: 'made by hand'"
    assert "mine" not in set(sys.modules) - before


def test_a_process_that_hangs_is_ended():
    code, printed, _ = isolated._run([sys.executable, "-uc", "print('on it')\nwhile True: pass"], 2)
    assert code is None
    assert printed == "on it\n"


def test_hanging_is_a_finding(file, monkeypatch):
    monkeypatch.setattr(isolated, "_run", lambda command, timeout: (None, "", ""))
    found = examine_file(file, "attention", timeout=7)
    assert found.codes == ("hangs",)
    assert found.findings[0].evidence == "it was still running after 7 seconds"


def test_a_process_that_dies_is_a_finding(file, monkeypatch):
    monkeypatch.setattr(isolated, "_run", lambda command, timeout: (-11, "", ""))
    assert examine_file(file, "attention").findings[0].evidence == "the process ended with status -11"


def test_raising_is_a_finding_that_says_where(file, here):
    found = examine_file(file, "broken")
    assert found.codes == ("raises",)
    assert "always NameError: name 'undefined' is not defined" in found.findings[0].evidence
    file.write_text("import torch\n\n1 / 0\n")
    assert (
        examine_file(file, "attention").findings[0].evidence
        == "ZeroDivisionError: division by zero, mine.py line 3"
    )


def test_a_class_is_made_and_examined(file, here):
    assert examine_file(file, "Head").healthy


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("atention", {}, r"mine\.py has no 'atention'; it has attention, broken, Head\."),
        ("attention", {"layout": "abc"}, r"layout='abc' is not known; wanted one of bhnd"),
        ("attention", {"timeout": 0}, r"timeout=0 is no time at all; wanted seconds, more than 0\."),
    ],
)
def test_a_refusal_names_what_there_is(file, here, name, options, message):
    with pytest.raises(RegardError, match=message):
        examine_file(file, name, **options)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RegardError, match=r"there is no file .*none\.py\. Name a Python file"):
        examine_file(tmp_path / "none.py", "attention")


def test_the_command_ends_with_1_when_something_is_found(file, here):
    done = CliRunner().invoke(app, ["doctor", f"{file}:attention"])
    assert done.exit_code == 1
    assert "[missing-scale]" in done.output


def test_the_command_ends_with_0_on_a_clean_bill_and_prints_json(file, here):
    done = CliRunner().invoke(app, ["doctor", f"{file}:Head", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.output.splitlines()[-1])["healthy"] is True


def test_the_command_wants_a_file_and_a_name():
    done = CliRunner().invoke(app, ["doctor", "mine.py"])
    assert isinstance(done.exception, RegardError)
    assert str(done.exception) == (
        "'mine.py' does not say what to examine. Name a file and what is in it: file.py:attention."
    )
