"""Worked examples in the prints of many languages and pages, joined heads among them: read whole, judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.checking import check
from regard.errors import ShapeError

FORMATS = json.loads((Path(__file__).parent / "data" / "formats.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_print_is_read_whole_and_its_mistake_is_named(name):
    case = FORMATS[name]
    report = check(case["text"])
    assert sum(example.checked for example in report) == case["checked"]
    assert [cell.printed.text for cell in report.wrong] == case["wrong"]
    assert case["cause"] in ("", *(cause for example in report for cause in example.causes))


def test_joined_heads_are_judged_and_the_way_they_were_joined_is_named():
    heads = "head_1 = [[1, 2], [3, 4]]\nhead_2 = [[5, 6], [7, 8]]\nconcat = "
    for rows, cause in (
        ("[[1, 2, 3, 4], [5, 6, 7, 8]]", "joined by a reshape without a transpose"),
        ("[[5, 6, 1, 2], [7, 8, 3, 4]]", "joined in the opposite order"),
        ("[[1, 5, 2, 6], [3, 7, 4, 8]]", "the numbers of the heads alternate"),
    ):
        (example,) = check(heads + rows)
        assert cause in example.causes[0]
    with pytest.raises(
        ShapeError,
        match="2 heads side by side are 2 × 4 and what they are joined to is 4 × 2; they stand over",
    ):
        check(heads + "[[1, 2], [3, 4], [5, 6], [7, 8]]")
