"""`is_causal=True` in attention and observe."""

from __future__ import annotations

import re

import pytest
import torch

import regard
from regard import Causal, Window
from regard.errors import MaskError

Q = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("mask", "meant"), [(None, Causal()), (Window(2), Causal() & Window(2))])
def test_is_causal_is_the_causal_mask_where_lengths_are_equal(mask, meant):
    wanted = regard.attention(Q, Q, Q, mask=meant)
    assert torch.equal(regard.attention(Q, Q, Q, mask=mask, is_causal=True), wanted)
    assert torch.equal(
        regard.observe(Q, Q, Q, mask=mask, is_causal=True).out, regard.observe(Q, Q, Q, meant).out
    )


@pytest.mark.parametrize("call", [regard.attention, regard.observe])
def test_is_causal_is_refused_where_it_could_mean_two_masks(call):
    message = (
        "is_causal=True is ambiguous for 3 queries and 5 keys: PyTorch aligns the first query with the first"
    )
    with pytest.raises(MaskError, match=f"^{re.escape(message)}.*mask=Causal().*regard.sdpa"):
        call(Q[:, :, :3], Q, Q, is_causal=True)
