"""The list of families in the how-to is what the data file and the tests say.

To write it anew after a change: PYTHONPATH=src:tests python -m models.test_families_page
"""

from __future__ import annotations

from pathlib import Path

from models.families import notes
from models.test_banded import BANDED
from models.test_outside import MADE, TINY

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "watch.md"
BLOCKS = "which attends in blocks by itself"
BEGIN, END = "<!-- families: from tests/models/families.toml -->\n", "<!-- end of families -->\n"


def listed() -> str:
    """What the page says about families."""
    reasons: dict[str, list[str]] = {}
    for name, reason in sorted(notes()["refused"].items()):
        reasons.setdefault(reason, []).append(f"`{name}`")
    own = sorted({name.split()[0] for name in (*MADE, *TINY)} | {*BANDED, *notes()["own_code"]})
    lines = ["| families, by `model_type` | `watch` |", "| --- | --- |"]
    rest = "runs regard's attention, compared with eager where a small model can be built"
    lines += [f"| every other family that uses the registry | {rest} |"]
    lines += [f"| {', '.join(f'`{name}`' for name in own)} | observes the model's own code |"]
    blocks = sorted(name for name, reason in notes()["maps"].items() if "in blocks" in reason)
    lines += [f"| {', '.join(f'`{name}`' for name in blocks)} | records all but the encoder, {BLOCKS} |"]
    lines += [f"| {', '.join(names)} | refuses: {reason} |" for reason, names in reasons.items()]
    return "\n" + "\n".join(lines) + "\n\n"


def test_the_page_lists_the_families_that_are_tested():
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == listed()


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(before + BEGIN + listed() + END + after, encoding="utf-8")
