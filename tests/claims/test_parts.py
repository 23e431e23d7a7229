"""What claims are made of: clocks, memory, words, figures."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.claims.figures import draw, save
from regard.claims.memory import peak_bytes
from regard.claims.pictures import Bars, Curves, Grid
from regard.claims.timing import medians, threads
from regard.claims.words import listed, number, percent, slope


@given(st.floats(-1e12, 1e12, allow_subnormal=False))
def test_a_number_in_words_is_the_number_to_three_digits(value):
    shown = float(number(value).replace("−", "-").replace(",", ""))
    assert math.isclose(shown, value, rel_tol=6e-3, abs_tol=1e-300)


@given(st.integers(-3, 3), st.floats(0.1, 10))
def test_the_slope_of_a_power_is_its_exponent(power, factor):
    x = [1.0, 2.0, 5.0, 63.0]
    assert math.isclose(slope(x, [factor * v**power for v in x]), power, abs_tol=1e-9)


def test_shares_and_lists_read_as_words():
    shares = {0.0: "0", 0.5: "50", 0.0662: "6.6", 1.0: "100", 4e-4: "0.04", -0.02: "-2"}
    assert [percent(share) for share in shares] == [f"{text}\N{NO-BREAK SPACE}%" for text in shares.values()]
    assert [listed(x) for x in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_peak_memory_counts_what_lives_at_once_and_no_view_twice():
    a = torch.ones(65, 63)
    assert peak_bytes(lambda: a.T.reshape(-1)[:3]) == a.nbytes
    assert peak_bytes(lambda: (a + 1).sum()) == a.nbytes + 4
    assert peak_bytes(lambda: [a + 1 for _ in range(3)]) == 3 * a.nbytes

    def one_after_another():
        for _ in range(5):
            a.clone()

    assert peak_bytes(one_after_another) <= 2 * a.nbytes


def test_tasks_are_timed_in_turns():
    calls = []
    found = medians({name: lambda name=name: calls.append(name) for name in "ab"}, rounds=2, at_least=0.0)
    assert "".join(calls) == "ababab"
    assert set(found) == {"a", "b"}
    assert all(seconds >= 0 for seconds in found.values())


def test_threads_come_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), threads(before + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


PICTURES = [
    Curves({"a": ([1, 2, 4], [1.0, 2.0, 3.0])}, "x", "y", log="xy"),
    Curves({name: ([0, 1], [0.0, 1.0]) for name in "abcde"}, "x", "y"),
    Curves({"dots": ([0.5], [0.5])}, "x", "y", dots=True),
    Bars(["one", "", "three"], {"a": [1.0, 2.0, 3.0], "b": [3.0, 2.0, 1.0]}, "y", "x", level=1.0),
    Bars([str(10**9 + i) for i in range(9)], {"a": [1.0] * 9}, "y"),
    Grid([[0.0, 1.0], [0.5, 0.5]], "row", "column", annotate=True, limit=1.0),
    Grid.pair([[1.0, 0.0]], [[0.0, 1.0]], "row", "column"),
]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda p: type(p).__name__)
def test_every_picture_is_drawn_and_the_same_one_gives_the_same_file(picture, tmp_path):
    for name in ("a.svg", "b.svg"):
        save(picture, tmp_path / name, "a title")
    first = (tmp_path / "a.svg").read_bytes()
    assert first.startswith(b"<?xml")
    assert first == (tmp_path / "b.svg").read_bytes()
    assert draw(picture, "a title").axes[0].get_title() == "a title"


def test_one_line_has_no_legend_and_many_have_theirs_outside():
    one, many = draw(PICTURES[0]), draw(PICTURES[1])
    assert one.axes[0].get_legend() is None
    assert not one.legends
    assert many.axes[0].get_legend() is None
    assert len(many.legends[0].get_texts()) == 5


def test_few_points_on_a_logarithmic_axis_get_a_tick_each():
    labels = draw(Curves({"a": ([512, 1024, 2**20], [1, 2, 3])}, "n", "y", log="x")).axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == ["512", "1k", "1M"]


def test_whole_numbers_get_whole_ticks():
    figure = draw(Curves({"a": ([1, 2, 3], [1.0, 2.0, 3.0])}, "layers", "y"))
    figure.draw_without_rendering()
    assert all(tick == int(tick) for tick in figure.axes[0].get_xticks())


def test_two_matrices_stand_side_by_side_with_a_gap():
    grid = Grid.pair([[1.0, 2.0]], [[3.0]], "row", "column")
    assert grid.cells == [[1.0, 2.0, -math.inf, 3.0]]
    assert grid.column_labels == ["0", "1", "", "0"]
