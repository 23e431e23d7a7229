"""A trace as a figure."""

from __future__ import annotations

import pytest
import torch

from regard.errors import MapError
from regard.tracing import example, trace


def texts_of(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_plot_writes_every_weight_that_is_not_hidden():
    figure = example("cat").plot()
    assert texts_of(figure) == [
        "1.00",
        "0.47",
        "0.53",
        "0.31",
        "0.35",
        "0.34",
        "0.23",
        "0.28",
        "0.26",
        "0.23",
    ]
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["The", "cat", "sat", "down"]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("query", "key")
    assert axes.get_title() == "weights = softmax(masked)"


@pytest.mark.parametrize("step", ["input", "q", "v", "scores", "masked", "output"])
def test_every_step_can_be_plotted(step):
    assert example("cat").plot(step).axes[0].get_title() == example("cat")[step].formula


def test_a_plot_is_of_the_chosen_head():
    q = torch.ones(1, 2, 1, 1)
    v = torch.tensor([3.0, 5.0]).view(1, 2, 1, 1)
    steps = trace(q, q, v, sink=[0.0, 0.0])
    assert texts_of(steps.plot("v", head=1)) == ["5"]
    assert texts_of(steps.plot("sink", head=1)) == ["0.27"]


def test_a_plot_of_a_long_text_has_no_numbers_in_it():
    q = torch.ones(25, 2)
    assert texts_of(trace(q, q, q).plot()) == []


def test_a_plot_of_no_such_step_is_refused():
    with pytest.raises(MapError, match="this trace has no step 'heads'"):
        example("cat").plot("heads")
