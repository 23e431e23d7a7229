"""Styles of naming and layout: each gets a clean bill, and every mistake is named in some of them.

The whole table, each style with each mistake, is a program: `python tests/doctor/table.py`.
"""

from __future__ import annotations

import pytest

from doctor.styles import MISTAKES, STYLES
from doctor.table import made
from regard.doctor import examine


@pytest.mark.share(3)
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_a_healthy_style_gets_a_clean_bill(style):
    found = examine(made(style.source()))
    assert found.verdict == "healthy", str(found)


@pytest.mark.share(3)
@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=lambda number: f"{number} {MISTAKES[number][0]}")
def test_a_mistake_is_named_whatever_the_style(number):
    codes, slots = MISTAKES[number]
    # A style each, so that all of them are met in turn.
    style = STYLES[(5 * number + 1) % len(STYLES)]
    found = examine(made(style.source(**slots)))
    assert set(found.codes) & set(codes.split()), f"{style.name}: {found}"


def test_the_zoo_and_the_styles_are_as_many_as_they_say():
    assert len(STYLES) >= 20
    assert len(STYLES) * len(MISTAKES) >= 300
