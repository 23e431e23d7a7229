"""Tables on narrow terminals."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from regard.commands.narrow import as_lines, width_of
from regard.commands.output import console


def wide() -> Table:
    table = Table(title="a model, 9 tokens", caption="a note")
    for name in ("layer", "head", "kinds", "evidence", "entropy", "γ"):
        table.add_column(name)
    evidence = "0.35 of the weight is on tokens after the same token, over 1626 queries"
    table.add_row("6", "3", Text("induction 0.34"), evidence, "3.18", "0.52")
    table.add_row("6", "4", "[bold]–[/bold]", "", "3.83", "–")
    return table


def test_a_row_becomes_lines_and_no_number_is_cut():
    said = as_lines(wide(), 40).splitlines()
    assert said[0] == "a model, 9 tokens"
    assert said[1] == "layer 6 · head 3 · kinds induction 0.34"
    assert "layer 6 · head 4 · entropy 3.83" in said
    assert said[-1] == "a note"
    assert max(map(len, said)) <= 40
    assert "entropy 3.18 · γ 0.52" in " ".join(" ".join(said).split())


def test_the_width_counts_numbers_whole_and_text_folded():
    assert width_of(wide()) == 5 + 4 + 14 + 24 + 7 + 4 + 5 * 3 + 4


def test_a_narrow_terminal_gets_lines_and_a_wide_one_the_table(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run("cost", "llama-3.1-8b", "--context", "4k,128k")[1]
    assert "…" not in narrow
    assert " · " in narrow
    monkeypatch.setenv("COLUMNS", "200")
    assert " · " not in run("cost", "llama-3.1-8b", "--context", "4k,128k")[1]


def test_a_name_between_colons_is_no_picture(capsys):
    console().print("g.py:a: 1 finding", markup=True)
    assert capsys.readouterr().out == "g.py:a: 1 finding\n"
