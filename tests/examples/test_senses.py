"""The examples of a model that hears and of one that sees run and learn, on less than their own budget."""

from __future__ import annotations

import random

import pytest
import torch

from examples.running import PNG, example
from regard.atlas import TimedWord


@pytest.mark.long
def test_attention_says_when_each_digit_was_dialled(tmp_path):
    result = example("phone_number").main(steps=800, out=tmp_path, heard_of_each=400)
    assert result.accuracy > 0.5
    assert result.off < result.off_equal
    assert (tmp_path / "phone_number.png").read_bytes().startswith(PNG)


@pytest.mark.long
def test_a_word_finds_its_shape_in_the_picture(tmp_path):
    result = example("coloured_shapes").main(steps=300, out=tmp_path)
    assert result.accuracy > 0.6
    assert result.found > 3 * result.chance
    assert (tmp_path / "coloured_shapes.png").read_bytes().startswith(PNG)


def test_a_key_has_its_two_tones():
    module = example("phone_number")
    strength = torch.fft.rfft(module.tone("5", module.RATE)).abs()
    assert sorted(strength.topk(2).indices.tolist()) == [770, 1336]


def test_tones_are_where_a_number_says():
    module = example("phone_number")
    number = module.dialled("314", random.Random(1))
    assert number.digits == "314"
    loud = torch.zeros(len(number.sound), dtype=torch.bool)
    for start, stop in number.spans:
        loud[round(start * module.RATE) : round(stop * module.RATE)] = True
    assert number.sound[loud].square().mean() > 100 * number.sound[~loud].square().mean()


def test_ends_are_off_by_what_is_between_them():
    module = example("phone_number")
    number = module.Number("12", torch.zeros(1), [(0.0, 0.2), (0.8, 1.0)])
    words = [TimedWord("1", 0.0, 0.3), TimedWord("2", 0.3, 1.1)]
    found, equal = module.ends_off([(number, words)])
    assert found == pytest.approx(0.1)
    # Equal parts end at 0.5 and 1.0; of two numbers the lower is the median.
    assert equal == pytest.approx(0.0)


def test_a_shape_is_drawn_in_its_patch_and_colour():
    module = example("coloured_shapes")
    picture, shapes = module.scene(4, random.Random(2))
    patches = picture.unfold(0, module.PATCH, module.PATCH).unfold(1, module.PATCH, module.PATCH)
    for shape in shapes.values():
        patch = patches[shape.patch // module.SIDE, shape.patch % module.SIDE]
        colours = {tuple(point) for point in patch.flatten(1).T.tolist()}
        assert colours == {(242, 242, 242), module.COLOURS[shape.colour]}
