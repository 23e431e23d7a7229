"""`regard check` from the outside."""

from __future__ import annotations

import io
import json
import sys

import pytest

from regard.checking import check

WRONG = "softmax(1, 2, 3) = 0.09, 0.26, 0.67"


def test_what_is_right_ends_with_status_0_and_what_is_wrong_with_1(run):
    status, out, err = run("check", "softmax(1, 2, 3) = 0.09, 0.24, 0.67")
    assert (status, err) == (0, "")
    assert "All 3 checked numbers are right." in out
    status, out, _ = run("check", WRONG)
    assert status == 1
    assert "column 1: 0.26, right is 0.24" in out
    assert "A row that does not sum to 1: it adds up to 1.02." in out


def test_a_file_and_standard_input_are_read(run, tmp_path, monkeypatch):
    path = tmp_path / "tutorial.md"
    path.write_text("| score | weight |\n|---|---|\n| 1 | 0.27 |\n| 2 | 0.73 |\n", encoding="utf-8")
    assert run("check", str(path))[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(WRONG))
    assert run("check", "-")[0] == 1


def test_json_is_what_the_function_returns(run):
    status, out, _ = run("check", WRONG, "--json")
    assert status == 1
    assert json.loads(out) == check(WRONG).to_dict()
    cells = json.loads(out)["examples"][0]["steps"][1]["cells"][0]
    assert [cell["verdict"] for cell in cells] == ["right", "wrong", "right"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "nowhere.md",
            "there is no file nowhere.md; give one with printed numbers, or - for standard input.",
        ),
        ("scores: 1 2\nscores: 3 4", "scores is given twice; give each table once, "),
        ("scores: a b 3", "no table of attention was found: "),
        (
            '{"scores": [[1, 0]',
            "the JSON cannot be read: Expecting ',' delimiter (line 1, column 19). Paste the whole document.",
        ),
    ],
)
def test_a_refusal_is_one_line_and_status_2(run, source, said):
    status, out, err = run("check", source)
    assert (status, out) == (2, "")
    assert err.startswith(f"regard: {said}")
    assert err.count("\n") == 1


def test_a_file_that_is_no_text_is_refused(run, tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\xff\xfe")
    assert (
        run("check", str(path))[2] == f"regard: {path} is not a text file; give printed numbers in UTF-8.\n"
    )


def test_every_cell_is_coloured_in_a_terminal(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m0.26✗" in run("check", WRONG)[1]
