"""The code on the page about the atlas runs, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "atlas.md").read_text()


def test_the_code_on_the_page_runs(capsys):
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/atlas.md", "exec"), names)
    said = capsys.readouterr().out
    assert "HeadCard(decoder 4.1: previous token" in said
    assert len(names["rows"]) == 54
