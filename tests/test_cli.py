"""The command line, as a user meets it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import regard
from processes import checkout, python
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
    return python("-m", "regard", *arguments, env=checkout(**environment), text=False)


def test_the_version_is_printed(capsys):
    assert run(capsys, "--version") == (0, f"regard {regard.__version__}\n", "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "map.png"), "regard: map.png: Permission denied.\n"),
        (OSError(28, "No space left on device"), "regard: No space left on device.\n"),
        (
            MemoryError(),
            "regard: there is not enough memory. Use a shorter text, fewer layers, or a smaller model.\n",
        ),
    ],
)
def test_a_failure_of_the_system_is_one_line_and_status_1(capsys, monkeypatch, error, said):
    def fail(**_):
        raise error

    monkeypatch.setattr("regard.cli.app", fail)
    assert run(capsys, "plot") == (1, "", said)


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
        (["--json", "--query", "sat"], "--json prints every query; leave out --query, or leave out --json."),
    ],
)
def test_a_refusal_is_one_line_and_status_2(capsys, arguments, text):
    assert run(capsys, "explain", *arguments) == (2, "", f"regard: {text}\n")


def test_a_file_that_cannot_be_written_is_a_refusal_too(capsys, tmp_path):
    path = tmp_path / "missing" / "x.html"
    status, out, err = run(capsys, "explain", "--html", str(path))
    assert (status, out) == (2, "")
    assert err == (
        f"regard: {path} cannot be written: there is no such folder. Name a file in a folder that exists.\n"
    )


def test_no_command_prints_the_help(capsys):
    _, out, err = run(capsys)
    assert "explain" in out + err


@pytest.mark.parametrize("command", ["", *(command.callback.__name__ for command in app.registered_commands)])
def test_the_help_of_every_command_shows_an_example(capsys, command):
    status, out, _ = run(capsys, *filter(None, [command]), "--help")
    assert status == 0
    assert f"Example: regard {command}".rstrip() in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["nowhere.regard"],
            "nowhere.regard is not a recording, nor a folder of recordings. Check the name.",
        ),
        (["empty"], "empty is not a recording, nor a folder of recordings. Check the name."),
        (["--model", "./nowhere"], "nowhere does not exist; wanted a folder with a model. Check the name."),
        (
            ["--text", "nowhere.txt"],
            "nowhere.txt does not exist; wanted a text file, '-' for stdin, or the text itself.",
        ),
    ],
)
def test_view_refuses_what_it_cannot_show_before_it_serves(capsys, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert run(capsys, "view", *arguments) == (2, "", f"regard: {text}\n")


def test_view_hands_its_options_to_the_viewer(capsys, tmp_path, monkeypatch):
    import regard.viewer.opening as opening

    seen = {}
    monkeypatch.setattr(
        opening, "open_viewer", lambda settings, text, **more: seen.update(vars(settings), text=text, **more)
    )
    options = [
        "--host",
        "0.0.0.0",
        "--port",
        "81",
        "--cache",
        str(tmp_path),
        "--model",
        "m",
        "--text",
        "t",
        "--no-open",
    ]
    assert run(capsys, "view", str(tmp_path), *options)[0] == 0
    assert (seen["recordings"], seen["host"], seen["port"]) == ((tmp_path,), "0.0.0.0", 81)
    assert (seen["cache"], seen["model"], seen["text"], seen["open_browser"]) == (tmp_path, "m", "t", False)


def test_colours_are_for_terminals_only(capsys, monkeypatch):
    assert "\x1b[" not in run(capsys, "explain")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run(capsys, "explain")[1]


def test_python_m_regard_works_in_a_pipe_of_any_encoding():
    done = in_a_process("explain", PYTHONIOENCODING="cp1252", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "−0.300" in done.stdout.decode("utf-8")
    assert done.stderr == b""
