"""docs/causal.md: what the page shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "causal.md"


def examples(markdown: str) -> str:
    """The ```python blocks of a page, every line where the page has it."""
    found, inside = [], False
    for line in markdown.splitlines():
        fence = line.startswith("```")
        found.append(line if inside and not fence else "")
        inside = line == "```python" if fence else inside
    return "\n".join(found)


def test_the_examples_on_the_page_run_and_print_what_it_says():
    test = doctest.DocTestParser().get_doctest(examples(PAGE.read_text()), {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 12
    told: list[str] = []
    doctest.DocTestRunner().run(test, out=told.append)
    assert not told, "".join(told)
