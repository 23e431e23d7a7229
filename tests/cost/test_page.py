"""The page about cost: its examples run, and what it says of the tests is true."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from cost.tiny import TINY

PAGE = (Path(__file__).parents[2] / "docs" / "cost.md").read_text(encoding="utf-8")


def test_the_examples_on_the_page_run_and_print_what_it_says():
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "cost.md", "docs/cost.md", 0)
    assert len(test.examples) > 8
    told: list[str] = []
    doctest.DocTestRunner().run(test, out=told.append)
    assert not told, "".join(told)


def test_the_page_says_how_many_models_are_compared():
    assert f"{len(TINY)} tiny models" in PAGE
