"""docs/coverage.md: every row has its code, its test and its example, and every link says the truth."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.pages import DOCS, ROOT

PAGE = (DOCS / "coverage.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(?:#[^)\s]+)?\)")
KINDS = ("code", "test", "example")
# Rows are numbered as the list of topics that they cover is; those after the first come as they are covered.
FIRST, ROWS = 28, 42


class Row(NamedTuple):
    """One thing that textbooks describe: its number, its title, and the links of each kind."""

    number: int
    title: str
    words: str
    links: dict[str, list[tuple[str, str]]]


def rows_of(page: str) -> list[Row]:
    """The rows of a page, with (text, path) of every link."""
    rows = []
    for number, title, body in re.findall(
        r"^## (\d+)\. (.+?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL
    ):
        links = {
            kind: LINK.findall(line)
            for kind, line in re.findall(r"^- \*\*(\w+)\*\* (.+)$", body, re.MULTILINE)
        }
        rows.append(Row(int(number), title, body.partition("\n- ")[0].strip(), links))
    return rows


TABLE = rows_of(PAGE)
BY_KIND = {kind: [(row.number, *link) for row in TABLE for link in row.links.get(kind, [])] for kind in KINDS}


def defined(path: Path) -> set[str]:
    """The functions, methods, classes and constants of a Python file; the words of any other file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(re.findall(r"\w+", text))
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def missing(text: str, path: str) -> str | None:
    """What is wrong with a link of the page, in words: no such file, or no such name in it."""
    found = (DOCS / path).resolve()
    if not found.is_file():
        return f"{path} does not exist"
    named = re.fullmatch(r"`([\w./]+)`", text)
    if named is None:
        return None
    if "." in named[1]:
        return None if path.endswith(named[1]) else f"{path} is not {named[1]}"
    return None if named[1] in defined(found) else f"{path} defines no {named[1]}"


def test_all_rows_are_there_in_order_with_a_sentence_each():
    numbers = [row.number for row in TABLE]
    assert numbers[:FIRST] == list(range(1, FIRST + 1))
    assert numbers == sorted({*numbers})
    assert numbers[-1] <= ROWS
    assert all(row.words.endswith(".") for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.number}")
def test_a_row_has_code_a_test_and_an_example_and_all_of_them_exist(row):
    assert tuple(row.links)[:3] == KINDS
    assert set(row.links) <= {*KINDS, "claims"}
    for kind, links in row.links.items():
        assert links, f"row {row.number} has no {kind}"
        assert [wrong for link in links if (wrong := missing(*link))] == []


def test_code_is_code_tests_are_tests_and_examples_run():
    for number, text, path in BY_KIND["code"]:
        assert path.startswith(("../src/", "../frontend/src/", "../tests/doctor/zoo/healthy/")), number
        assert text.startswith("`"), number
    for number, text, path in BY_KIND["test"]:
        assert path.startswith("../tests/"), number
        assert text.startswith("`test_"), number
    for number, _, path in BY_KIND["example"]:
        assert path.endswith(".md") or path.startswith(("../examples/", "../tests/doctor/zoo/")), number


def test_every_claim_of_the_ledger_serves_a_row():
    ledger = (DOCS / "claims.md").read_text(encoding="utf-8")
    measured = set(re.findall(r"^\| \[([\w-]+)\]\(#", ledger, re.MULTILINE))
    assert len(measured) > 40
    assert measured == set(re.findall(r"claims\.md#([\w-]+)", PAGE))


def test_every_example_of_the_repository_serves_a_row():
    linked = {Path(path).name for _, _, path in BY_KIND["example"]}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} - linked == {"gallery.py"}


@pytest.mark.parametrize(
    ("text", "path", "wrong"),
    [
        ("`attention`", "../src/regard/engine/attention.py", None),
        ("the tutorial", "tutorial.md", None),
        ("`attentoin`", "../src/regard/engine/attention.py", "defines no attentoin"),
        ("`attention`", "../src/regard/engine/attentions.py", "does not exist"),
        ("`examples/scale.py`", "../examples/decay.py", "is not examples/scale.py"),
    ],
)
def test_a_wrong_link_would_be_seen(text, path, wrong):
    assert missing(text, path) == (wrong and f"{path} {wrong}")


def test_a_row_without_a_kind_would_be_seen():
    (row,) = rows_of("## 1. One\n\nWords.\n\n- **code** [`a`](b.py)\n- **test** none\n")
    assert row.links == {"code": [("`a`", "b.py")], "test": []}
