"""docs/history.md: in order, and with its papers."""

from __future__ import annotations

import re

from docs.pages import DOCS

PAGE = (DOCS / "history.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d{4}) \| (.+?) \| (.+?) \|", PAGE, re.MULTILINE)


def test_every_paper_of_the_history_has_its_year_and_its_link():
    years = [int(year) for year, _, _ in ROWS]
    assert years == sorted(years)
    assert {2014, 2015, 2016, 2017} <= set(years)
    links = re.findall(r"https://arxiv\.org/abs/(\d{2})(\d{2})\.\d{5}", PAGE)
    assert len(links) >= 20
    # A number of the archive begins with the year and month in which the paper came.
    for year, _, papers in ROWS:
        for found in re.findall(r"abs/(\d{2})\d{2}\.", papers):
            assert 2000 + int(found) in (int(year) - 4, int(year) - 1, int(year)), papers


def test_the_papers_of_the_classic_mechanisms_are_named():
    for name in ("Bahdanau", "Luong", "Parikh", "Vaswani", "Dao"):
        assert any(name in papers for _, _, papers in ROWS), name
