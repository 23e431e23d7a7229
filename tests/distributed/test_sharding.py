"""Who holds what, and how much there is to do for each."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distributed.catalogue import MASKS
from regard.distributed import Sharding
from regard.distributed.balance import row_pairs, spread
from regard.errors import DistributedError
from regard.masks import Causal, Documents, Window


@given(
    st.integers(1, 70), st.integers(1, 9), st.sampled_from(["contiguous", "head_tail", "chunked", "balanced"])
)
def test_every_position_is_held_once(length, ranks, layout):
    if length < ranks:
        return
    given = (Causal(), length, ranks) if layout == "balanced" else (length, ranks)
    held = getattr(Sharding, layout)(*given)
    assert held.ranks == ranks
    together = torch.cat([held.positions(rank) for rank in range(ranks)])
    assert torch.equal(together.sort().values, torch.arange(length))


@given(st.integers(1, 70), st.integers(1, 9))
def test_equal_layouts_differ_by_few_positions(length, ranks):
    if length >= ranks:
        assert (
            max(Sharding.contiguous(length, ranks).sizes) - min(Sharding.contiguous(length, ranks).sizes) <= 1
        )
        sizes = Sharding.head_tail(length, ranks).sizes
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("mask", MASKS)
def test_the_pairs_of_each_query_are_those_of_the_matrix(mask):
    made = MASKS[mask](61)
    if made is not None:
        made = made.bind(2, 4)
        dense = made.dense(61)
        assert torch.equal(row_pairs(made, 61), dense.sum(-1).reshape(-1, 61).sum(0))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize(
    "mask",
    [
        Causal(),
        Window(301),
        Causal() & Window(1001),
        Documents(lengths=[5001, 707, 3003, 1290]),
        Causal() & Documents(lengths=[5001, 707, 3003, 1290]),
    ],
    ids=["causal", "window", "causal window", "documents", "causal documents"],
)
def test_balanced_shards_have_as_many_pairs_to_1_percent(mask, ranks):
    held = Sharding.balanced(mask, 10_001, ranks)
    pairs = held.pairs(mask)
    assert sum(pairs) == mask.pairs(10_001)
    assert spread(pairs) <= 0.01


def test_head_and_tail_are_balanced_for_a_causal_mask_and_contiguous_shards_are_not():
    assert spread(Sharding.head_tail(10_001, 4).pairs(Causal())) < 0.001
    assert spread(Sharding.contiguous(10_001, 4).pairs(Causal())) > 1.4


def test_documents_stay_whole():
    held = Sharding.by_document([7, 20, 5, 29], 3)
    assert sorted(held.sizes) == [12, 20, 29]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Sharding.contiguous(3, 4), "a sequence of 3 positions cannot be cut for 4 ranks"),
        (lambda: Sharding.head_tail(3, 4), "Start at most 3 ranks"),
        (lambda: Sharding.contiguous(3, 0), "cannot be cut for 0 ranks"),
        (lambda: Sharding(((range(3),), (range(2, 5),))), "does not hold every position once"),
        (lambda: Sharding(((range(3),), (range(4, 5),))), "does not hold every position once"),
        (lambda: Sharding(()), "does not hold every position once"),
    ],
)
def test_impossible_layouts_are_refused(make, said):
    with pytest.raises(DistributedError, match=said):
        make()
