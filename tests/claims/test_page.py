"""The page in docs/ is the ledger's, and so are its figures."""

from __future__ import annotations

import re

from claims.documented import DOCS, statements, verdicts
from regard.claims import CLAIMS, Kind, run
from regard.claims.page import numbers_of, page

LARGEST = 60_000


def test_the_page_has_every_claim_in_the_words_of_the_ledger():
    assert statements() == {name: claim.statement for name, claim in CLAIMS.items()}


def test_the_page_has_a_verdict_for_every_claim_and_the_table_has_the_same():
    found = verdicts()
    assert set(found.values()) <= set(Kind)
    text = (DOCS / "claims.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[(\S+)\]\(#\S+\) \| .+ \| (.+) \|$", text, re.MULTILINE))
    assert rows == found


def test_every_figure_is_linked_once_and_small():
    text = (DOCS / "claims.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((images/claims/\S+\.svg)\)", text)
    there = sorted((DOCS / "images" / "claims").iterdir())
    assert sorted(linked) == [path.relative_to(DOCS).as_posix() for path in there]
    assert [path.name for path in there if path.stat().st_size > LARGEST] == []


def test_a_page_of_some_claims_has_these_and_no_others():
    entries = run(["mask-after", "scale-64"])
    text = page(entries, "figures")
    assert re.findall(r"^### (\S+)$", text, re.MULTILINE) == ["scale-64", "mask-after"]
    assert "](figures/mask-after.svg)" in text
    assert "scale-64.svg" not in text
    assert "## Softmax" not in text
    assert f"**Holds.** {entries[1].verdict}" in text


def test_numbers_are_shown_in_words_and_long_lists_are_left_to_the_figure():
    [scale, masks] = run(["scale-saturates", "mask-inf"])
    assert "entropy without" not in numbers_of(scale)
    assert numbers_of(scale)["keys"] == "64"
    assert numbers_of(masks)["float16 can hold it"] == "no"
    assert numbers_of(masks)["leak infinite"] == "(float32: 0, bfloat16: 0, float16: 0)"
