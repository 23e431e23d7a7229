"""A printed number, and how far from it the exact one may be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.checking import numeral
from regard.errors import RegardError


@pytest.mark.parametrize(
    ("printed", "exact", "shows", "right"),
    [
        ("0.65", 0.6583, False, "0.66"),
        ("0.66", 0.6583, True, "0.66"),
        ("0.65", 0.645, True, "0.65"),
        ("1", 1.0, True, "1"),
        ("0", 1e-3, False, "0.001"),
        ("0.00", 0.0002, True, "0.00"),
        ("1.5e-9", 2.06e-9, False, "2.1e-9"),
        ("-0.20", -0.25, False, "-0.25"),
        ("0.10", 0.125, False, "0.13"),
        ("35%", 0.4512, False, "45%"),
        ("−∞", -math.inf, True, "-inf"),
        ("-0.0", -0.001, True, "0.0"),
    ],
)
def test_a_printed_number_may_be_half_of_its_last_digit_off(printed, exact, shows, right):
    found = numeral(printed)
    assert found.shows(exact) is shows
    assert found.right(exact) == right


@given(st.floats(-1e6, 1e6, allow_subnormal=False), st.integers(1, 9))
def test_a_number_printed_with_any_digits_shows_the_number(x, decimals):
    assert numeral(f"{x:.{decimals}f}").shows(x)
    assert numeral(f"{x:.{decimals}e}").shows(x)


@given(st.floats(0.001, 1e3), st.integers(1, 6), st.floats(0.51, 100))
def test_a_number_more_than_half_a_digit_off_is_seen(x, decimals, units):
    found = numeral(f"{x:.{decimals}f}")
    assert not found.shows(found.value + units * 10.0**-decimals)


@given(st.floats(0, 1e3), st.integers(1, 6))
def test_cutting_digits_off_is_told_from_rounding(x, decimals):
    cut = math.floor(x * 10**decimals) / 10**decimals
    found = numeral(f"{cut:.{decimals}f}")
    assert found.truncates(x) or math.isclose(x, cut + 10.0**-decimals)


@pytest.mark.parametrize("text", ["", "cat", "1.2.3", "--1", "1e", "4 TB"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(RegardError, match=r"is no number|has the unit"):
        numeral(text)
