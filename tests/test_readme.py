"""`make readme`: what it takes from a page. The run itself builds a wheel, and is no test."""

from __future__ import annotations

import sys
from pathlib import Path

from building import readme

PAGE = """
```python
a = 1
```
words
```text
regard nothing
```
```bash
pip install regard
regard view
regard record bundled story.txt -o x.regard    # a comment
```
```python
print(a)
```
"""


def test_blocks_are_one_program_with_the_lines_of_the_page():
    lines = readme.program(PAGE).splitlines()
    assert (lines[2], lines[14]) == ("a = 1", "print(a)")
    assert len([line for line in lines if line]) == 2


def test_of_a_session_the_code_is_run_and_its_output_left_out():
    page = "```python\n>>> for x in 1, 2:\n...     x\n1\n2\n\n```\n```python\ny = x\n```"
    assert readme.program(page).split("\n") == ["", "for x in 1, 2:", "    x", *[""] * 5, "y = x", "", ""]


def test_commands_are_those_that_end():
    assert readme.commands(PAGE) == ["regard record bundled story.txt -o x.regard"]


def test_pages_can_be_chosen():
    assert [page.name for page in readme.pages(["README"])] == ["README.md"]
    assert len(readme.pages([])) > 30


def test_what_fails_is_counted_and_shown(tmp_path, capsys):
    good = [sys.executable, "-c", "pass"]
    bad = [sys.executable, "-c", "raise SystemExit('it broke')"]
    assert readme.told("good", lambda: readme.ran(good, tmp_path))
    assert not readme.told("bad", lambda: readme.ran(bad, Path(tmp_path)))
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["ok", "FAILED"]
    assert "it broke" in err
