"""The code on the page about modules runs, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "nn.md").read_text()


def test_the_code_on_the_page_runs(capsys):
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/nn.md", "exec"), names)
    assert names["watched"].seen.entropy.shape == (1, 8, 100)
    assert "torch.Size([2, 3])" in capsys.readouterr().out


def test_every_example_the_page_names_exists():
    named = re.findall(r"`(examples/\w+\.py)`", PAGE)
    assert len(named) == 3
    assert all((Path(__file__).parents[2] / path).is_file() for path in named)
