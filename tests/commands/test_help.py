"""What `--help` prints, for every command and on narrow terminals."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from regard.cli import app
from regard.commands.app import ORDER
from regard.commands.sources import head_named
from regard.errors import RegardError

ROOT: Any = typer.main.get_command(app)
COMMANDS = {(name,): command for name, command in ROOT.commands.items()} | {
    ("corpus", name): command for name, command in ROOT.commands["corpus"].commands.items()
}


@pytest.mark.parametrize("names", [(), *COMMANDS])
def test_no_line_of_the_help_is_wider_than_the_terminal(run, names, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    status, out, _ = run(*names, "--help")
    assert status == 0
    # A word that is longer than its line stays whole: only examples have such.
    assert [line for line in out.splitlines() if len(line) > 60] == []
    assert "…" not in out.replace("4 … 4096", "")


@pytest.mark.parametrize("names", COMMANDS)
def test_every_value_has_a_name_and_every_option_a_sentence(names):
    for one in COMMANDS[names].params:
        assert one.hidden or one.help.endswith("."), one.name
        assert one.metavar or one.is_flag, one.name


@pytest.mark.parametrize("names", COMMANDS)
def test_the_summary_is_one_sentence_that_fits_a_line(names):
    summary = COMMANDS[names].help.split("\n\n")[0]
    assert summary.endswith(".")
    assert len(summary) <= 88


def test_commands_are_listed_in_the_order_of_the_sections(run):
    assert set(ORDER) == set(ROOT.commands)
    out = run("--help")[1]
    assert [out.index(f"\n  {name} ") for name in ORDER] == sorted(
        out.index(f"\n  {name} ") for name in ORDER
    )
    assert out.startswith(
        "Exact attention you can look at, at any length.\n\nUsage: regard COMMAND ...\n\nLook:\n"
    )


def test_usage_has_brackets_where_an_argument_may_be_left_out(run):
    assert "Usage: regard record [OPTIONS] [MODEL] [TEXT]\n" in run("record", "--help")[1]
    assert "Usage: regard compare [OPTIONS] A B\n" in run("compare", "--help")[1]
    assert "Usage: regard exercise [OPTIONS] [ACTION] [N] [ANSWER...]\n" in run("exercise", "--help")[1]


def test_defaults_are_said_once(run):
    said = " ".join(run("record", "--help")[1].split())
    assert "The recording to write. Default: recording.regard." in said
    assert said.count("Default: bundled.") == 1
    assert "Default: None" not in said


def test_a_head_is_named_with_its_layer_or_without():
    with pytest.raises(RegardError, match="--head is 'six'; wanted a head such as 3"):
        head_named("six", None)
    with pytest.raises(RegardError, match=r"--layer 5 and --head 6.3 name two layers. Leave out --layer."):
        head_named("6.3", 5)
    assert head_named("6.3", 6) == (6, 3)
