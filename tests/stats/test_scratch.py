"""Memory that tiles reuse."""

from __future__ import annotations

import torch

from regard.stats.scratch import KEPT, scratch


def test_scratch_memory_is_reused_for_the_same_use_shape_and_dtype():
    like = torch.ones(1)
    first = scratch("reused", (2, 3), like)
    assert scratch("reused", (2, 3), like) is first
    assert scratch("another", (2, 3), like) is not first
    assert scratch("reused", (3, 2), like) is not first
    assert scratch("reused", (2, 3), like.double()).dtype == torch.float64


def test_only_a_few_shapes_are_kept():
    like = torch.ones(1)
    first = scratch("forgotten", (1,), like)
    for size in range(2, KEPT + 2):
        scratch("forgotten", (size,), like)
    assert scratch("forgotten", (1,), like) is not first


def test_what_was_used_last_is_kept_longest():
    like = torch.ones(1)
    first = scratch("remembered", (1,), like)
    for size in range(2, 2 * KEPT):
        scratch("remembered", (size,), like)
        assert scratch("remembered", (1,), like) is first
