"""A file and a name: raising, hanging, printing, missing; and the command around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.doctor import child, isolated
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
            child.work(json.loads(command[-1]))
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
        assert ended.read() == ""  # no process holds the pipe any more


def test_a_file_runs_in_a_process_of_its_own_and_what_it_prints_is_noted(file):
    before = set(sys.modules)
    found = examine_file(file, "attention", timeout=1e6)
    assert found.codes == ("missing-scale",)
    assert found.name == "mine.py:attention"
    assert found.notes[-1] == "it prints 1 line: 'made by hand'"
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


@pytest.mark.parametrize(
    ("code", "evidence"),
    [
        (-11, "the process was ended by signal SIGSEGV"),
        (-99, "the process was ended by signal 99"),
        (0, "it ended the process with exit status 0"),
    ],
)
def test_a_process_that_dies_is_a_finding(file, monkeypatch, code, evidence):
    monkeypatch.setattr(isolated, "_run", lambda command, timeout: (code, "", ""))
    found = examine_file(file, "attention")
    assert found.codes == ("raises",)
    assert found.findings[0].evidence == evidence


def test_raising_is_a_finding_that_says_where(file, here):
    found = examine_file(file, "broken")
    assert found.codes == ("raises",)
    assert found.findings[0].evidence == "always NameError: name 'undefined' is not defined"
    file.write_text("import torch\n\n1 / 0\n")
    assert (
        examine_file(file, "attention").findings[0].evidence
        == "ZeroDivisionError: division by zero, mine.py line 3"
    )


def test_a_mask_of_no_known_meaning_is_refused_where_no_mask_is_taken_too(file, here):
    with pytest.raises(RegardError, match=r"mask='odd' is not known; wanted allowed, blocked or additive\."):
        examine_file(file, "attention", mask="odd")


def test_what_no_other_layout_would_mend_is_a_finding(file, here):
    file.write_text(
        "def deep(q, k, v):\n    return deep(q, k, v)\n\n\ndef asks(q, k, v):\n    raise EOFError('no')\n"
    )
    assert examine_file(file, "deep").findings[0].evidence.startswith("always RecursionError: maximum")
    assert examine_file(file, "asks").findings[0].evidence == "always EOFError: no"
    file.write_text("raise KeyboardInterrupt\n")
    assert examine_file(file, "deep").findings[0].evidence == "KeyboardInterrupt, mine.py line 1"


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


MORE = """
import torch


class Attention(torch.nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.c_attn = torch.nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = torch.nn.Linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (y.view(b, n, self.n_head, -1).transpose(1, 2) for y in self.c_attn(x).split(c, 2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.c_proj(y.transpose(1, 2).reshape(b, n, c))


class Demanding(torch.nn.Module):
    def __init__(self, layers_of_thing):
        super().__init__()
        self.linear = torch.nn.Linear(layers_of_thing["width"][0], 8)


small = type("Config", (), dict(n_embd=8, n_head=2, bias=True))
model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Attention(small, 0)])})


def odd(q, k, v):
    return torch.sigmoid(q @ k.mT) @ v
"""


@pytest.fixture
def more(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MORE)
    return path


def test_a_class_that_wants_a_configuration_gets_a_small_one(more, here):
    found = examine_file(more, "Attention")
    assert found.healthy, str(found)
    assert found.reading["d_model"] == 32
    assert examine_file(more, "Attention", given={"n_embd": 24, "n_head": 3}).reading["heads"] == 3


def test_a_module_inside_a_model_is_named_by_its_path(more, here):
    assert examine_file(more, "model.layers.0").healthy
    with pytest.raises(RegardError, match=r"model in mine\.py has no 'blocks'\."):
        examine_file(more, "model.blocks.0")


def test_a_class_that_cannot_be_made_says_which_argument_to_give(more, here):
    wanted = (
        r"Demanding\(layers_of_thing=32\) could not be made .*Give its arguments with --with, as in --with"
    )
    with pytest.raises(RegardError, match=wanted):
        examine_file(more, "Demanding")
    with pytest.raises(RegardError, match=r"Demanding takes no width; it takes layers_of_thing\."):
        examine_file(more, "Demanding", given={"width": 8})


def test_the_command_ends_with_3_where_nothing_was_examined(more, here):
    done = CliRunner().invoke(app, ["doctor", f"{more}:odd"])
    assert done.exit_code == 3
    assert "mine.py:odd: not examined." in done.output


def test_the_command_ends_with_4_where_the_doctor_itself_fails(more, here, monkeypatch):
    import_module("regard.doctor.examination")

    def fail(*args, **options):
        raise KeyError("ours")

    monkeypatch.setattr(sys.modules["regard.doctor.examination"], "examine", fail)
    done = CliRunner().invoke(app, ["doctor", f"{more}:odd"])
    assert done.exit_code == 4
    assert "internal error of regard doctor; please report it" in " ".join(done.output.split())
    assert "KeyError: 'ours'" in done.output


def test_arguments_for_a_class_are_names_and_values(more, here):
    done = CliRunner().invoke(app, ["doctor", f"{more}:Attention", "--with", "n_head"])
    assert str(done.exception) == "--with is 'n_head'; wanted NAME=VALUE such as n_head=4."


def test_the_command_line_needs_no_pytorch_of_its_own():
    code = "import sys, regard.doctor.isolated, regard.commands.doctor; print('torch' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=isolated._environment()
    )
    assert ran.stdout == "False\n", ran.stderr


def test_without_process_groups_the_child_alone_is_killed(monkeypatch):
    # As on Windows.
    monkeypatch.delattr(os, "killpg", raising=False)
    killed = []
    isolated._kill(SimpleNamespace(pid=os.getpid(), kill=lambda: killed.append("child")))
    assert killed == ["child"]
