"""The engine's own layers: a file or folder imports only from rows below its own in docs/design.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "src" / "regard" / "engine"
MODULES = sorted(path for path in ENGINE.rglob("*.py") if path != ENGINE / "__init__.py")


def rows() -> list[list[str]]:
    """The table of the page, from top to bottom."""
    section = (ROOT / "docs" / "design.md").read_text().split("### Layers of the engine")[1].split("\n## ")[0]
    return [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)]


RANK = {noun: rank for rank, nouns in enumerate(rows()) for noun in nouns}


def noun_of(path: Path) -> str:
    """The file or folder of the engine that a module belongs to."""
    first = path.relative_to(ENGINE).parts[0]
    return first.removesuffix(".py")


def imports_of(source: str) -> set[str]:
    """The files and folders of the engine that a module imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[:2] == ["regard", "engine"]:
            rest = (node.module or "").split(".")[2:]
            found |= {rest[0]} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {name[2] for name in names if name[:2] == ["regard", "engine"] and len(name) > 2}
    return found


def upward(source: str, here: str) -> list[str]:
    """The imports that the table does not allow, in words."""
    return [
        f"{here} imports {noun}" for noun in sorted(imports_of(source) - {here}) if RANK[noun] <= RANK[here]
    ]


def test_the_table_names_each_file_and_folder_of_the_engine_once():
    named = [noun for row in rows() for noun in row]
    assert sorted(named) == sorted({noun_of(path) for path in MODULES})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ENGINE).as_posix())
def test_a_module_of_the_engine_imports_only_from_rows_below(path):
    assert upward(path.read_text(), noun_of(path)) == []


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("problem", "from regard.engine.dispatch import choose"),
        ("native", "def late():\n    from regard.engine.triton.launch import start"),
        ("backend", "from regard.engine import backends"),
        ("schedule", "import regard.engine.problem"),
    ],
)
def test_the_layer_test_sees_imports_upwards_and_sideways(here, source):
    assert len(upward(source, here)) == 1
