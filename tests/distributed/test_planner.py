"""What the planner of `regard.cost` predicts is what real runs send, at 1, 2 and 4 ranks."""

from __future__ import annotations

import pytest

from distributed.catalogue import BATCH, DIM, KV_HEADS, LENGTH
from regard.cost import Reach, traffic

# Numbers of one key and its value, in float32; the cases' values have two numbers more than keys.
PER_KEY = 4 * BATCH * KV_HEADS * (DIM + DIM + 2)
LAYOUTS = {"contiguous": "contiguous", "head tail": "head-tail"}


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mask", "causal"), [("causal", True), ("none", False)])
@pytest.mark.parametrize("exchange", ["gather", "ring"])
def test_predicted_bytes_are_those_that_were_counted(world, exchange, mask, causal, layout, ranks):
    said = world.run("distributed.parity.sends", ranks, mask=mask, layout=layout, exchange=exchange)
    predicted = traffic(LENGTH, ranks, LAYOUTS[layout], Reach(), causal)
    assert [forward for forward, *_ in said] == [PER_KEY * keys for keys in predicted.sent.tolist()]
