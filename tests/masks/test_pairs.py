"""Pairs are counted exactly, without the matrix."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from effort import examples
from regard.masks import (
    And,
    BigBird,
    Causal,
    Chunk,
    Dense,
    Documents,
    Global,
    Mask,
    Padding,
    Prefix,
    StreamingSinks,
    Strided,
    Where,
    Window,
)
from strategies import lengths, masks

MILLION = 1_000_000


@examples(100)
@given(data=st.data(), q=lengths(129), k=lengths(129), batch=st.integers(1, 2), heads=st.integers(1, 2))
def test_pairs_are_the_sum_of_the_matrix(data: st.DataObject, q: int, k: int, batch: int, heads: int) -> None:
    mask = data.draw(masks(q, k, batch, heads))
    matrix = mask.dense(q, k)
    whole = matrix.expand(mask.batch or 1, mask.heads or 1, q, k)
    assert mask.pairs(q, k) == int(whole.sum())


@pytest.mark.parametrize("n", [257, 2049])
def test_pairs_are_exact_across_levels_of_tiles(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.masks.pairs.ROOTS", 4)
    for mask in (StreamingSinks(5, 70), BigBird(16, n), Causal() | Prefix(100), ~Global((3, 200))):
        assert mask.pairs(n - 3, n) == int(mask.dense(n - 3, n).sum())


@pytest.mark.parametrize(
    ("mask", "pairs"),
    [
        (Causal(), MILLION * (MILLION + 1) // 2),
        (Causal() & Window(4096), 4096 * MILLION - 4096 * 4095 // 2),
        (Chunk(8192), 122 * 8192**2 + 576**2),
        (Global(3), 6 * MILLION - 9),
        (Strided(1000), 1000 * MILLION),
        (Causal() & Documents(lengths=[1000] * 1000), 1000 * 500_500),
        (Causal() & Strided(1000), 1000 * 1000 * 1001 // 2),
        (Causal() & (Window(10) | Strided(1000)), 500_500_000 + 9 * MILLION - 45),
        (Causal() | Prefix(1000), MILLION * (MILLION + 1) // 2 + 1000 * 999 // 2),
    ],
    ids=repr,
)
def test_pairs_of_a_million_by_a_million_match_the_formula(mask: Mask, pairs: int) -> None:
    assert mask.pairs(MILLION) == pairs


@examples(100)
@given(data=st.data(), q=lengths(), k=lengths())
def test_spans_are_the_rows_of_the_matrix(data: st.DataObject, q: int, k: int) -> None:
    mask = data.draw(masks(q, k, batch=2))
    spans = mask.spans(torch.arange(k - q, k))
    if spans is not None:
        low, high = spans
        key = torch.arange(k)
        told = (low[..., None] <= key) & (key < high[..., None])
        assert torch.equal(*torch.broadcast_tensors(told, mask.dense(q, k)))


@pytest.mark.parametrize(
    "mask",
    [Causal(), Window(3, 2), Chunk(4, reach=1), Prefix(5), Global(2), Documents(lengths=[30, 3, 30])],
    ids=repr,
)
def test_masks_that_show_one_interval_per_query_say_so(mask: Mask) -> None:
    assert mask.spans(torch.arange(63)) is not None
    assert (Causal() & mask).spans(torch.arange(63)) is not None


@pytest.mark.parametrize(
    "mask",
    [Strided(2), Global((4,)), Causal() | Prefix(5), ~Causal(), Documents(ids=torch.tensor([0, 1, 0]))],
    ids=repr,
)
def test_masks_that_show_more_than_one_interval_name_none(mask: Mask) -> None:
    assert mask.spans(torch.arange(3)) is None
    assert (Causal() & mask).spans(torch.arange(3)) is None


def test_pairs_count_every_batch_row_and_head_of_the_mask() -> None:
    assert Padding(torch.tensor([[True, False], [True, True]])).pairs(3, 2) == 3 + 6
    assert (Causal() & Padding.from_lengths([1, 2, 3], 3)).pairs(3) == 3 + 5 + 6
    assert Dense(torch.ones(2, 3, 4, 5, dtype=torch.bool)).pairs(4, 5) == 2 * 3 * 4 * 5
    assert (Causal() & Dense(torch.ones(1, 3, 2, 2, dtype=torch.bool))).pairs(2) == 3 * 3
    assert Where(lambda b, h, q_idx, kv_idx: kv_idx <= b + h).bind(2, 2).pairs(1, 9) == 1 + 2 + 2 + 3


def test_pairs_leave_out_padding_between_documents() -> None:
    mask = Documents(ids=torch.tensor([3, 3, -1, -1, -1, 8]))
    assert mask.pairs(6) == 2 * 2 + 1 * 1
    assert (Causal() & mask).pairs(4, 6) == 1


def test_pairs_of_no_queries_or_no_keys_are_none() -> None:
    for mask in (Causal(), Strided(3), And(Causal(), Strided(3)), ~Prefix(0)):
        assert mask.pairs(0, 5) == mask.pairs(5, 0) == 0


def test_counting_never_shows_a_mask_positions_past_the_end() -> None:
    table = torch.arange(65)

    class Own(Mask):
        def allows(self, q: Tensor, k: Tensor) -> Tensor:
            return table[q] >= table[k]

    assert Own().pairs(65) == 65 * 66 // 2
