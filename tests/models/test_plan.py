"""The description that models hand around in place of a mask tensor."""

from __future__ import annotations

import pytest
import torch
from transformers import masking_utils as made

from regard.errors import MaskError
from regard.masks import Causal
from regard.models.plan import plan_mask


def plan(q=5, k=9, **more):
    return plan_mask(2, q, k, q_offset=k - q, mask_function=made.causal_mask_function, **more)


def test_a_plan_looks_like_the_tensor_it_stands_for():
    described = plan()
    assert described.shape == (2, 1, 5, 9)
    assert described.size(-1) == 9
    assert described.ndim == described.dim() == 4
    assert described.to("cpu") is described
    assert described.dtype == torch.bool


def test_slices_from_the_beginning_give_the_plan_of_fewer_queries_and_keys():
    assert plan()[:, :, :, :7].shape == (2, 1, 5, 7)
    assert plan()[..., :3, :7].shape == (2, 1, 3, 7)
    assert torch.equal(plan()[..., :7].mask(5, 7).dense(5, 7), Causal().dense(5, 9)[:, :7])


@pytest.mark.parametrize("index", [0, (slice(None), slice(None), slice(2, None)), (..., None)])
def test_what_would_need_the_matrix_is_refused(index):
    with pytest.raises(MaskError, match="the mask is a description and takes only slices that start at"):
        plan()[index]


def test_padding_is_extended_to_keys_it_does_not_mention():
    seen = plan_mask(
        1, 3, 5, mask_function=made.bidirectional_mask_function, attention_mask=torch.tensor([[1, 0, 1]])
    )
    assert seen.mask(3, 5).dense(3, 5)[0, 0, 0].tolist() == [True, False, True, False, False]


def test_the_plan_of_a_plan_is_itself():
    described = plan()
    assert plan_mask(2, 5, 9, attention_mask=described) is described
