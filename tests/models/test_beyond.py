"""Families outside the registry, or joined from others: outputs, cells and statistics are the model's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from models.beyond import MADE, OTHERS, TINY, WITHOUT_MAPS, made
from models.test_parity import check_close
from regard.models import watch

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """Every tensor of an output but its maps, which are recorded ones under `watch`."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict | tuple | list):
        named = output.items() if isinstance(output, dict) else enumerate(output)
        for name, value in named:
            if "attent" not in str(name):
                yield from tensors(value)


def weights(output: Any) -> Iterator[torch.Tensor]:
    """Every map of an output, as (batch x heads, q, k)."""
    for name, value in output.items():
        if "attent" in name:
            yield from (x.reshape(-1, *x.shape[-2:]) for x in tensors([value]))
        elif isinstance(value, dict):
            yield from weights(value)


def is_in(recorded: list[torch.Tensor], one: torch.Tensor) -> bool:
    """Whether a map was recorded; some models return the mean over the heads."""
    forms = [form for ours in recorded for form in (ours.flatten(0, 1), ours.mean(1))]
    return any(form.shape == one.shape and torch.allclose(form, one, atol=2e-6, rtol=1e-3) for form in forms)


@torch.no_grad()
@pytest.mark.parametrize("name", [*MADE, *TINY])
def test_a_family_computes_what_it_computes_alone(name):
    model, given = made(name)
    torch.manual_seed(0)
    expected = model(**given)
    torch.manual_seed(0)
    with watch(model) as recording:
        output = model(**given)
    pairs = [pair for pair in zip(tensors(output), tensors(expected), strict=True) if pair[0].numel()]
    for ours, theirs in pairs:
        check_close(ours.float().nan_to_num(), theirs.float().nan_to_num(), "outputs")
    recorded = [layer.map.dense() for layer in recording.all_layers]
    assert recorded
    for layer, ours in zip(recording.all_layers, recorded, strict=True):
        entropy = torch.special.entr(ours.double()).sum(-1)
        torch.testing.assert_close(layer.entropy.double(), entropy, atol=1e-4, rtol=1e-4)
    if name in WITHOUT_MAPS:
        for ours in recorded:
            torch.testing.assert_close(ours.sum(-1), torch.ones(ours.shape[:-1]), atol=1e-5, rtol=0)
        return
    torch.manual_seed(0)
    theirs = list(weights(model(**given, output_attentions=True)))
    missing = [tuple(one.shape) for one in theirs if not is_in(recorded, one)]
    assert len(theirs) > len(missing)
    assert len(missing) == OTHERS.get(name, 0), missing
