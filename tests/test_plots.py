"""Figures: what they hold, that they can be read, and the picture at the top of the README."""

from __future__ import annotations

import importlib.util
import io
import math
import re
import struct
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from processes import python
from regard import masks, plots
from regard.errors import MaskError, ShapeError
from regard.masks import Causal, Dense, Window
from regard.plots import curves, heatmap, ink, mask_figure, shade

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def luminance(color: str) -> float:
    """How light a colour is, as the web's accessibility guidelines measure it."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def lightness(color: str) -> float:
    """CIE L*, near enough to how light a colour looks."""
    return 116 * luminance(color) ** (1 / 3) - 16


def png_size(png: bytes) -> tuple[int, int]:
    return struct.unpack(">II", png[16:24])


def png_of(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file)
    return file.getvalue()


def texts_of(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("step", range(-24, 25))
def test_text_in_every_shade_can_be_read(step, dark):
    color = shade(step / 24, dark)
    low, high = sorted([luminance(color), luminance(ink(color))])
    assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
def test_equal_steps_of_a_number_are_nearly_equal_steps_of_lightness(sign, dark):
    ramp = [lightness(shade(sign * step / 8, dark)) for step in range(1, 9)]
    steps = [b - a for a, b in pairwise(ramp)]
    assert all((step > 0) == dark for step in steps)
    assert max(map(abs, steps)) < 1.6 * min(map(abs, steps))


def test_a_shade_stays_at_its_end_beyond_the_range():
    assert shade(7.0) == shade(1.0)
    assert shade(-7.0) == shade(-1.0)


def test_a_heatmap_writes_its_cells_and_hides_the_hidden():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    figure = heatmap(weights, ["a", "b"], ["c", "d"], hidden=~Causal().dense(2), title="a head")
    assert texts_of(figure) == ["1.00", "0.25", "0.75"]
    axes = figure.axes[0]
    assert axes.get_title() == "a head"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "d"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")


def test_minus_infinity_is_hidden_without_being_told():
    assert texts_of(heatmap(torch.tensor([[1.0, -math.inf]]))) == ["1"]


def test_whole_numbers_have_no_decimals_and_zero_no_sign():
    assert texts_of(heatmap(torch.tensor([[10.0, -2.0]]))) == ["10", "−2"]
    assert texts_of(heatmap(torch.tensor([[0.5, -0.001, 12345.6]]))) == ["0.50", "0.00", "1e+04"]


def test_annotations_can_be_left_out():
    assert texts_of(heatmap(torch.eye(3), annotate=False)) == []


@pytest.mark.parametrize(
    ("values", "limits"), [([[0.2, 0.4]], (0, 0.4)), ([[-2.0, 1.0]], (-2, 2)), ([[0.0]], (0, 1))]
)
def test_colours_are_centred_on_zero_when_there_are_negative_numbers(values, limits):
    image = heatmap(torch.tensor(values)).axes[0].images[0]
    assert image.get_clim() == pytest.approx(limits)


def test_two_heatmaps_can_share_a_scale():
    image = heatmap(torch.eye(3), limit=2.0).axes[0].images[0]
    assert image.get_clim() == (0, 2)


@pytest.mark.parametrize(
    ("q", "k", "annotate"), [(1, 1, True), (1, 65, True), (63, 2, True), (1, 1, False), (65, 65, False)]
)
def test_a_heatmap_of_any_shape_can_be_saved(q, k, annotate):
    width, height = png_size(png_of(heatmap(torch.rand(q, k), annotate=annotate)))
    assert min(width, height) > 200


def test_a_token_that_looks_like_a_formula_is_drawn_as_text():
    tokens = ["$x", "\\frac{", "a_b"]
    figure = heatmap(torch.eye(3), tokens, tokens)
    assert png_of(figure)
    assert not any(label.get_parse_math() for label in figure.axes[0].get_xticklabels())


@pytest.mark.parametrize("length", [2, 12, 63])
def test_labels_of_a_heatmap_neither_overlap_nor_leave_the_figure(length):
    tokens = [f"token{i}" for i in range(length)]
    figure = heatmap(torch.rand(length, length), tokens, tokens, annotate=length < 20)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    rows, columns = (
        [label.get_window_extent() for label in side]
        for side in (axes.get_yticklabels(), axes.get_xticklabels())
    )
    assert not any(a.overlaps(b) for a, b in pairwise(rows))
    if (
        length == 63
    ):  # shorter ones are slanted, and the boxes around slanted lines overlap though the lines do not
        assert not any(a.overlaps(b) for a, b in pairwise(columns))
    assert all(figure.bbox.x0 <= box.x0 and figure.bbox.y0 <= box.y0 for box in (*rows, *columns))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((torch.ones(1, 2, 2),), "heatmap got an array of shape (1, 2, 2); it draws one matrix (q, k)"),
        ((torch.ones(0, 2),), "Pick a batch row and a head first: weights[0, 0]."),
        ((torch.ones(2, 2), ["a"]), "row_labels holds 1 labels; the matrix needs a list of 2."),
        ((torch.ones(2, 2), None, "ab"), "column_labels holds one string; the matrix needs a list of 2."),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, text):
    with pytest.raises(ShapeError, match=re.escape(text)):
        heatmap(*arguments)


def test_a_mask_of_another_shape_cannot_hide_cells():
    with pytest.raises(ShapeError, match=re.escape("hidden has shape (1, 2) and the matrix (2, 2)")):
        heatmap(torch.ones(2, 2), hidden=torch.ones(1, 2).bool())


def drawn_pairs(figure) -> torch.Tensor:
    return torch.from_numpy(figure.axes[0].images[0].get_array().filled(0.0)) > 0


@pytest.mark.parametrize(("q", "k"), [(1, 1), (3, 5), (63, 65), (65, 63)])
def test_a_mask_figure_shades_the_pairs_that_may_attend(q, k):
    mask = Causal() & Window(4)
    assert torch.equal(drawn_pairs(mask_figure(mask, q, k)), mask.dense(q, k))


def test_a_mask_figure_draws_the_chosen_batch_row_and_head():
    allowed = torch.rand(2, 3, 4, 4) < 0.5
    assert torch.equal(drawn_pairs(mask_figure(Dense(allowed), 4, batch=1, head=2)), allowed[1, 2])


def test_a_mask_figure_refuses_what_is_not_there():
    mask = Dense(torch.ones(1, 3, 4, 4).bool())
    with pytest.raises(MaskError, match="mask_figure got head 3 of a mask with 3; count from 0 to 2"):
        mask_figure(mask, 4, head=3)
    with pytest.raises(
        MaskError, match="mask_figure got 0 queries and 0 keys; there must be at least one of each"
    ):
        mask_figure(Causal(), 0)


@pytest.mark.parametrize(("count", "outside"), [(3, False), (40, True)])
def test_names_of_lines_stand_where_they_cover_none(count, outside):
    lines = {f"line {i}": ([1.0, 2.0, 4.0], [1.0, 0.5 / i, 0.1 / i]) for i in range(1, count + 1)}
    figure = curves(lines, x_title="x", y_title="y", emphasis=["line 2"])
    figure.draw_without_rendering()
    [legend] = figure.legends if outside else [figure.axes[0].get_legend()]
    assert [text.get_text() for text in legend.get_texts()] == ["line 2"]
    covered = legend.get_window_extent().overlaps(figure.axes[0].get_tightbbox())
    assert covered != outside


def test_figures_leave_pyplot_alone():
    program = (
        "import sys, torch, regard.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.heatmap(torch.eye(2))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


def load_hero():
    spec = importlib.util.spec_from_file_location("hero", IMAGES / "hero.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_hero_picture_is_small_and_wide():
    png = (IMAGES / "hero.png").read_bytes()
    assert len(png) < 300_000
    assert 1300 <= png_size(png)[0] <= 1500


def test_the_labels_of_the_hero_picture_are_its_masks():
    for name, mask in load_hero().PANELS.items():
        assert eval(name, vars(masks)) == mask


def test_the_hero_picture_shows_weights():
    hero = load_hero()
    for mask in hero.PANELS.values():
        weights = hero.weights(mask)
        torch.testing.assert_close(weights.sum(-1), torch.ones(hero.LENGTH))
        assert not weights[~mask.dense(hero.LENGTH)].any()


def test_every_plot_can_be_drawn_in_axes_of_yours():
    from matplotlib.figure import Figure

    from regard.tracing import example

    figure = Figure()
    parts = figure.subplots(1, 5)
    lines = {"a": ([1, 2], [3, 4])}
    drawn = [
        heatmap(torch.eye(3), ax=parts[0]),
        plots.mask_figure(masks.Causal(), 4, ax=parts[1]),
        plots.curves(lines, x_title="x", y_title="y", ax=parts[2]),
        plots.overview(torch.rand(4, 4), (8, 8), ax=parts[3]),
        example("cat").plot(ax=parts[4]),
    ]
    assert all(one is figure for one in drawn)
    assert all(part.has_data() for part in parts)


def test_labels_in_axes_of_yours_are_turned_where_cells_are_small():
    from matplotlib.figure import Figure

    names = ["The", " lamp", "light"]
    small, large = Figure(figsize=(4, 4)).subplots(3, 3)[0, 0], Figure(figsize=(8, 8)).subplots()
    for ax in (small, large):
        heatmap(torch.eye(3), names, names, annotate=False, ax=ax)
    turned = [ax.get_xticklabels()[0].get_rotation() for ax in (small, large)]
    assert turned[0] > 0
    assert turned[1] == 0


def test_an_inset_needs_axes_of_its_own():
    from matplotlib.figure import Figure

    with pytest.raises(ShapeError, match="overview got ax and inset"):
        plots.overview(
            torch.rand(4, 4), (8, 8), inset=plots.Inset(torch.eye(2), 0, 0), ax=Figure().subplots()
        )
