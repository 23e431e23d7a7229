"""The command line, as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.cli import app, main
from regard.tracing import EXAMPLES, example

SRC = Path(regard.__file__).parents[1]


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def in_a_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    paths = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "regard", *arguments],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        timeout=120,
        check=False,
    )


def test_view_prints_the_causal_example_and_what_to_do_next(capsys):
    status, out, _ = run(capsys, "view")
    assert status == 0
    assert out.startswith(str(example("cat")))
    assert "regard explain --query sat" in out


def test_the_version_is_printed(capsys):
    assert run(capsys, "--version") == (0, f"regard {regard.__version__}\n", "")


@pytest.mark.parametrize("name", EXAMPLES)
def test_explain_prints_any_example(capsys, name):
    assert run(capsys, "explain", "--example", name) == (0, f"{example(name)}\n", "")


@pytest.mark.parametrize("query", ["sat", "2"])
def test_explain_follows_one_query_by_token_or_number(capsys, query):
    status, out, _ = run(capsys, "explain", "--query", query)
    assert status == 0
    assert out == f"{example('cat').to_text(query='sat')}\n"


def test_explain_prints_json_and_nothing_else(capsys):
    status, out, _ = run(capsys, "explain", "--json")
    assert status == 0
    assert json.loads(out) == example("cat").to_dict()


def test_explain_writes_a_page(capsys, tmp_path):
    page = tmp_path / "steps.html"
    status, out, _ = run(capsys, "explain", "--html", str(page), "--query", "cat")
    assert (status, out) == (0, f"Wrote {page}\n")
    assert page.read_text(encoding="utf-8") == example("cat").to_html(query="cat")


def test_a_page_and_json_together_keep_the_json_clean(capsys, tmp_path):
    status, out, err = run(capsys, "explain", "--html", str(tmp_path / "x.html"), "--json")
    assert status == 0
    assert json.loads(out)
    assert err.startswith("Wrote ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--example", "dog"], "no example is called 'dog'; there are 'cat', 'three'."),
        (["--query", "dog"], "no query is called 'dog'; there are 'The', 'cat', 'sat', 'down'."),
        (["--query", "9"], "query 9 is out of range; there are 4, counted from 0."),
        (["--json", "--query", "sat"], "--json holds every query; leave out --query, or leave out --json."),
    ],
)
def test_a_refusal_is_one_line_and_status_2(capsys, arguments, text):
    assert run(capsys, "explain", *arguments) == (2, "", f"regard: {text}\n")


def test_a_file_that_cannot_be_written_is_a_refusal_too(capsys, tmp_path):
    path = tmp_path / "missing" / "x.html"
    status, out, err = run(capsys, "explain", "--html", str(path))
    assert (status, out) == (2, "")
    assert err == (
        f"regard: {path} cannot be written: No such file or directory. Name a file in a folder that exists.\n"
    )


def test_no_command_prints_the_help(capsys):
    _, out, err = run(capsys)
    assert "explain" in out + err


@pytest.mark.parametrize("command", ["", *(command.callback.__name__ for command in app.registered_commands)])
def test_the_help_of_every_command_shows_an_example(capsys, command):
    status, out, _ = run(capsys, *filter(None, [command]), "--help")
    assert status == 0
    assert f"Example: regard {command}".rstrip() in " ".join(out.split())


def test_colours_are_for_terminals_only(capsys, monkeypatch):
    assert "\x1b[" not in run(capsys, "view")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run(capsys, "view")[1]


def test_python_m_regard_works_in_a_pipe_of_any_encoding():
    done = in_a_process("view", PYTHONIOENCODING="cp1252", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "−0.300" in done.stdout.decode("utf-8")
    assert done.stderr == b""
