"""Reading a trace: by name, as data; and the examples."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re

import pytest
import torch

from regard.errors import MapError, RegardError
from regard.tracing import EXAMPLES, example, trace


def test_an_array_is_an_attribute_and_a_step_an_item():
    steps = example("cat")
    assert steps.weights is steps["weights"].value
    assert [step.name for step in steps] == steps.names
    assert len(steps) == 9
    assert "weights" in dir(steps)
    assert "weights" in steps
    assert "capped" not in steps


def test_a_step_that_did_not_happen_is_named_among_those_that_did():
    steps = example("three")
    text = "this trace has no step 'capped'; it has q, k, v, scores, scaled, weights, output."
    with pytest.raises(MapError, match=re.escape(text)):
        steps["capped"]
    with pytest.raises(AttributeError, match=re.escape(text)):
        steps.capped  # noqa: B018
    assert not hasattr(steps, "capped")


def test_a_trace_can_be_copied_and_pickled():
    steps = example("cat")
    for twin in (copy.deepcopy(steps), pickle.loads(pickle.dumps(steps))):
        assert str(twin) == str(steps)


def test_the_dict_is_strict_json_and_holds_every_number():
    steps = example("cat")
    data = json.loads(json.dumps(steps.to_dict(), allow_nan=False))
    assert data["tokens"] == data["key_tokens"] == ["The", "cat", "sat", "down"]
    assert [step["name"] for step in data["steps"]] == steps.names
    by_name = {step["name"]: step for step in data["steps"]}
    assert by_name["weights"]["value"] == steps.weights.tolist()
    assert by_name["masked"]["value"][0][1:] == ["-inf"] * 3
    assert by_name["masked"]["axes"] == ["query", "key"]
    assert set(by_name["q"]) == {"name", "formula", "sentence", "axes", "value"}


def test_numbers_that_are_none_are_written_as_strings():
    q = torch.tensor([[math.inf], [math.nan]])
    assert trace(q, q, q).to_dict()["steps"][0]["value"] == [["inf"], ["nan"]]


def test_repr_says_how_large_and_which_steps():
    q = torch.ones(2, 3, 1, 4)
    assert repr(trace(q, q, q)) == (
        "Trace(1 query × 1 key, 3 heads, 2 batch rows: q, k, v, scores, scaled, weights, output)"
    )


def test_the_examples_are_called_by_name():
    assert list(EXAMPLES) == ["cat", "three"]
    with pytest.raises(RegardError, match="no example is called 'dog'; there are 'cat', 'three'"):
        example("dog")
