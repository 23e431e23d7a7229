"""Models that read more than ids compute under `watch` what they compute eagerly, and so are their maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from models.multimodal import READS, made
from models.test_parity import check_close
from regard.models import watch

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """Every tensor of an output, also of the parts' outputs in it."""
    for value in output.values() if hasattr(output, "values") else output:
        if isinstance(value, torch.Tensor):
            yield value
        elif hasattr(value, "values"):
            yield from tensors(value)


def weights(output: Any) -> Iterator[list[torch.Tensor]]:
    """The maps of each part that returns some."""
    for name, value in output.items():
        if "attentions" in name and value:
            yield list(value)
        elif hasattr(value, "items"):
            yield from weights(value)


@torch.no_grad()
@pytest.mark.parametrize("name", READS)
def test_a_family_computes_what_it_computes_eagerly(name):
    model = made(name)
    given = READS[name](model)
    torch.manual_seed(0)
    expected = model(**given, output_attentions=True)
    torch.manual_seed(0)
    with watch(model) as recording:
        output = model(**given)
    pairs = [
        (a, b) for a, b in zip(tensors(output), tensors(expected), strict=False) if a.is_floating_point()
    ]
    assert pairs
    for ours, theirs in pairs:
        check_close(ours, theirs, "outputs")
    groups = list(weights(expected))
    assert groups
    stacks = [[layer.map.dense() for layer in stack.values()] for stack in recording.stacks.values()]
    for group in groups:
        assert any(
            len(stack) == len(group)
            and all(
                a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-5)
                for a, b in zip(stack, group, strict=True)
            )
            for stack in stacks
        ), f"no stack of {list(recording.stacks)} has the maps of this part"
