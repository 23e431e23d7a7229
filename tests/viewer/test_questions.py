"""Questions for a visitor: words that come back, and the heads that look at them."""

from __future__ import annotations

import pytest
import torch

from regard import Causal
from regard.models import Layer, Recording, bundled, record
from regard.models.identity import ModelIdentity
from regard.viewer.names import tokens_of
from regard.viewer.questions import questions
from viewer.samples import layer, recording

TEXT = (
    "The heron was called Osgood. It stood in the ford all day and looked at the water. The badger said to "
    "the heron, whose name was Osgood, that the water was cold. The water was not cold, said the heron."
)


@pytest.fixture(scope="module")
def read() -> Recording:
    return record(bundled(), TEXT)


def layers_of(made: Recording) -> list[Layer]:
    stack = made.stack("decoder")
    return [stack[number] for number in stack]


def test_a_name_that_comes_back_is_found_with_the_heads_that_look_at_it(read):
    layers = layers_of(read)
    count = layers[0].map.shape[3]
    tokens = tokens_of(read, "decoder", count)
    found = questions(layers, tokens).returning
    assert (found.word, found.mentions) == ("Osgood", 2)
    starts = [TEXT.index("Osgood"), TEXT.rindex("Osgood")]
    first, again = (
        [i for i in range(count) if tokens["stops"][i] > at and tokens["starts"][i] < at + 6] for at in starts
    )
    assert (found.query, found.gap) == (again[0], again[0] - first[0])
    assert found.key in first
    shares = torch.stack([one.map[0, :, found.query][:, first].sum(-1) for one in layers])
    best = found.finders[0]
    assert best.weight == pytest.approx(float(shares.max()), rel=1e-5)
    assert float(shares[best.layer, best.head]) == pytest.approx(best.weight, rel=1e-5)
    weights = [one.weight for one in found.finders]
    assert weights == sorted(weights, reverse=True)
    assert all(weight >= 0.1 for weight in weights[1:])


def test_the_farthest_look_is_the_heaviest_key_of_its_row(read):
    layers = layers_of(read)
    tokens = tokens_of(read, "decoder", layers[0].map.shape[3])
    found = questions(layers, tokens).farthest
    row = layers[found.layer].map[0, found.head, found.query]
    assert int(row.argmax()) == found.key
    assert float(row[found.key]) == pytest.approx(found.weight, rel=1e-4)
    assert found.distance == found.query - found.key
    assert all(sum(letter.isalpha() for letter in tokens["pieces"][i]) > 1 for i in (found.query, found.key))


def test_a_text_in_which_nothing_comes_back_has_no_such_question():
    made = recording(layer(0, 5, 5, Causal()))
    tokens = {
        "text": "one two three",
        "ids": [1, 2, 3, 4, 5],
        "starts": [0, 3, 4, 7, 8],
        "stops": [3, 4, 7, 8, 13],
        "pieces": ["one", " ", "two", " ", "three"],
    }
    assert questions(layers_of(made), tokens).returning is None
    assert questions([], tokens).farthest is None


def test_without_a_text_nothing_is_asked():
    made = Recording(ModelIdentity("somewhere/random", "Random", "0" * 64))
    made.put(layer(0, 65, 65, Causal()))
    found = questions(layers_of(made), tokens_of(made, "decoder", 65))
    assert (found.returning, found.farthest) == (None, None)
