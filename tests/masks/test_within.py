"""The mask of a part of the keys, and the mask of queries that are no padding."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.harness import own_random_state
from regard.masks import Causal, Chunk, Dense, Documents, Padding, Prefix, Window
from regard.masks.live import LiveQueries
from regard.masks.within import Moved, within
from strategies import masks

N = 33


@given(
    mask=masks(N, N, heads=2),
    start=st.integers(0, N - 1),
    length=st.integers(1, N),
)
def test_a_part_of_a_mask_allows_what_the_mask_allows_there(mask, start, length):
    keys = range(start, min(N, start + length))
    with own_random_state():
        wanted = mask.dense(N)[..., keys.start : keys.stop, keys.start : keys.stop]
        part = within(mask, keys, keys.start)
        found = torch.ones(len(keys), len(keys), dtype=torch.bool) if part is None else part.dense(len(keys))
        wanted, found = torch.broadcast_tensors(wanted, found)
        assert torch.equal(found, wanted)
        if part is not None:
            edges = torch.tensor(len(keys))
            cover = int(part.cover(edges - edges, edges, edges - edges, edges))
            assert cover != 2 or bool(found.all())
            assert cover != 0 or not bool(found.any())


def test_padding_that_is_cut_away_leaves_the_mask_a_text_has_alone():
    valid = torch.tensor([False] * 3 + [True] * 5 + [False])
    for mask in (Causal(), Causal() & Window(4), Window(2, 3)):
        assert within(mask & Padding(valid), range(3, 8), 3) == mask
    assert within(Padding(valid), range(3, 8), 3) is None
    assert within(Documents(ids=torch.where(valid, 4, -1)), range(3, 8), 3) is None
    assert within(Padding(valid) | Prefix(2), range(3, 8), 3) is None
    assert within(None, range(3, 8), 3) is None


def test_queries_and_keys_may_be_cut_apart():
    matrix = torch.rand(7, 9) < 0.5
    # Queries 2 … 4 and keys 3 … 8, with positions counted so that the last query sits on the last key.
    keys, rows = range(3, 9), slice(2, 5)
    part = within(Dense(matrix), keys, (9 - 7) + 2 - (6 - 3))
    assert isinstance(part, Moved)
    assert torch.equal(part.dense(3, 6), matrix[rows, 3:9])


def test_a_moved_interval_is_an_interval():
    low, high = Moved(Chunk(4), 2, 1).spans(torch.arange(6))
    matrix = Moved(Chunk(4), 2, 1).tile((0, 6), (0, 9))
    keys = torch.arange(9)
    assert torch.equal(matrix, (low[:, None] <= keys) & (keys < high[:, None]))


@given(flags=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=3))
def test_live_queries_see_every_key_and_the_others_none(flags):
    valid = torch.tensor(flags)
    with own_random_state():
        mask = LiveQueries(valid, start=2)
        wanted = valid[:, None, :, None].expand(-1, 1, -1, 9)
        assert torch.equal(mask.dense(7, 9), wanted)
        low, high = mask.spans(torch.arange(2, 9))
        keys = torch.arange(9)
        assert torch.equal((low[..., None] <= keys) & (keys < high[..., None]), wanted)
        for start in range(7):
            for stop in range(start + 1, 8):
                cover = mask.coverage((2 + start, 2 + stop), (0, 9))
                tile = wanted[:, :, start:stop]
                assert int(cover) == (2 if tile.all() else 0 if not tile.any() else 1)


def test_live_queries_are_equal_only_at_the_same_place():
    valid = torch.tensor([[True, False]])
    assert LiveQueries(valid, 0) == LiveQueries(valid.clone(), 0) != LiveQueries(valid, 1)
    assert len({LiveQueries(valid, 0), LiveQueries(valid.clone(), 0)}) == 1
