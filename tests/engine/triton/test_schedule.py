"""Schedules of interval masks, against the mask itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.harness import every_mask
from regard.engine.inputs import Options, problem_of
from regard.engine.triton.schedule.intervals import SIDE, intervals, schedule
from regard.errors import BackendError
from regard.masks import Causal, Chunk, Documents, StreamingSinks, Window

CPU = torch.device("cpu")
MASKS = {
    "none": None,
    "causal": Causal(),
    "window": Causal() & Window(100),
    "chunks": Causal() & Chunk(96),
    "documents": Documents([30, 200, 70]),
    "ragged documents": Documents(ids=torch.stack([torch.arange(300) // 130, torch.arange(300) // 250])),
}


def allowed(mask, n: int) -> torch.Tensor:
    """The dense mask, (planes, n, n)."""
    if mask is None:
        return torch.ones(1, n, n, dtype=torch.bool)
    return mask.tile((0, n), (0, n)).expand(mask.batch or 1, 1, n, n)[:, 0]


@pytest.mark.parametrize("name", MASKS)
def test_blocks_visit_what_is_seen_and_call_full_what_all_see(name):
    n, block = 300, 128
    table, order = schedule(MASKS[name], n, n, 0, CPU).blocks(block, block)
    seen = allowed(MASKS[name], n)
    for plane, rows in enumerate(table.tolist()):
        for index, (first, stop, full_first, full_stop) in enumerate(rows):
            part = seen[plane, index * block : (index + 1) * block]
            assert not part[:, : first * block].any()
            assert not part[:, stop * block :].any()
            assert part[:, full_first * block : max(full_first, full_stop) * block].all()
        assert sorted(order[plane].tolist()) == list(range(len(rows)))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("q", [300, 97])
def test_blocks_of_keys_are_met_by_all_who_see_them_and_tested_at_the_ends_that_matter(name, q):
    if q < 300 and name == "ragged documents":
        pytest.skip("documents are as long as the keys")
    n, block_q, block_k = 300, 64, 128
    table = schedule(MASKS[name], q, n, n - q, CPU)
    blocks, order = table.key_blocks(block_q, block_k)
    seen = allowed(MASKS[name], n)[:, n - q :]
    low, high = (x[:, 0, :, None] for x in table.whole(block_q))
    assert low.shape[1] % block_q == 0
    key, tile = torch.arange(n), torch.arange(q)[:, None] // block_q
    for plane, rows in enumerate(blocks.tolist()):
        for index, (first, stop, ends, begins) in enumerate(rows):
            some = slice(index * block_k, (index + 1) * block_k)
            wanted = seen[plane, :, some]
            got = (tile >= first) & (tile < stop) & (tile >= 0).expand(q, wanted.shape[1])
            got = got & ((tile >= ends) | (key[some] < high[plane, :q]))
            got = got & ((tile < begins) | (key[some] >= low[plane, :q]))
            assert torch.equal(got, wanted)
        assert sorted(order[plane].tolist()) == list(range(len(rows)))


@pytest.mark.parametrize("name", MASKS)
def test_blocks_of_keys_may_be_looked_at_one_by_one(name, monkeypatch):
    table = schedule(MASKS[name], 300, 300, 0, CPU)
    whole = table.key_blocks(64, 128)
    monkeypatch.setattr("regard.engine.triton.schedule.intervals.PAIRS", 1)
    assert all(map(torch.equal, table._key_blocks(64, 128), whole))


@pytest.mark.parametrize("name", MASKS)
def test_a_block_of_queries_sees_only_keys_between_its_first_and_last_block(name):
    n = 300
    seen, table = allowed(MASKS[name], n), schedule(MASKS[name], n, n, 0, CPU).seen
    for plane, rows in enumerate(table.tolist()):
        for index, (first, stop) in enumerate(rows):
            met = seen[plane, index * SIDE : (index + 1) * SIDE].any(0).nonzero().flatten()
            assert (first, stop) == (int(met[0]) // SIDE, int(met[-1]) // SIDE + 1)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("bands", [(range(5),), (range(2, 4),), (range(1), range(1, 4), range(4, 5))])
@pytest.mark.parametrize("wide", [2, 3])
@pytest.mark.parametrize("past", [False, True])
def test_strips_meet_every_block_that_is_seen_once(name, bands, wide, past):
    n, band = 300, range(bands[0].start, bands[-1].stop)
    strips = schedule(MASKS[name], n, n, 0, CPU).strips(bands, wide, past=past)
    seen = allowed(MASKS[name], n)
    blocks = -(-n // SIDE)
    for plane in range(seen.shape[0]):
        met = torch.zeros(blocks, blocks, dtype=torch.int64)
        for first, count, offset in [
            *strips.with_diagonals[plane].tolist(),
            *strips.without_diagonals[plane].tolist(),
        ]:
            for q in range(first, first + count):
                assert q in band
                for k in range(q + offset, q + offset + 2 * wide):
                    if 0 <= k < blocks:
                        met[q, k] += 1
        assert met.max() <= 1
        for q in band:
            for k in range(blocks):
                if seen[plane, q * SIDE : (q + 1) * SIDE, k * SIDE : (k + 1) * SIDE].any():
                    assert met[q, k] == 1


@pytest.mark.parametrize(("q", "k"), [(900, 900), (500, 1300), (1300, 900)])
@pytest.mark.parametrize("wide", [2, 3])
def test_strips_without_a_diagonal_of_the_past_are_kept_apart(q, k, wide):
    table = schedule(None, q, k, k - q, CPU)
    bands = (range(-(-q // SIDE)),)
    strips = table.strips(bands, wide, past=True)
    # Key and query stand at the same position where key - query = k - q.
    first = strips.without_diagonals[0, :, 2] * SIDE - (SIDE - 1)
    assert (first > k - q).all()
    assert (strips.with_diagonals[0, :, 2] * SIDE - (SIDE - 1) <= k - q).all()
    whole = table.strips(bands, wide)
    assert strips.without_diagonals.shape[1] > 0 == whole.without_diagonals.shape[1]
    assert whole.count == strips.count + strips.without_diagonals.shape[1]
    # What is told is found by its diagonal, the rest is nowhere.
    places = strips.pairs[0][0]
    assert sorted(places[places >= 0].tolist()) == [*range(wide * strips.count)]


@pytest.mark.parametrize("mask", [None, Causal()])
@pytest.mark.parametrize("heads", [1, 1000])
@pytest.mark.parametrize("diagonals", [False, True])
def test_a_sweep_is_split_if_diagonals_are_requested_and_both_parts_are_long(mask, heads, diagonals):
    from regard.engine.triton.hopper.second_pass.sweep import _Sweep
    from regard.engine.triton.second_pass.sweep import SweepRequest

    asked = SweepRequest(columns=True, diagonals=diagonals, past=True)
    table, problem = schedule(mask, 900, 900, 0, CPU), SimpleNamespace(batch=1, heads=heads)
    sweep = SimpleNamespace(request=asked, table=table, problem=problem, warpgroups=3, cuts=1)
    strips = _Sweep._strips(sweep, range(15))
    assert (strips.without_diagonals.shape[1] > 0) == (diagonals and mask is None and heads > 1)


@pytest.mark.parametrize("wide", [2, 3])
@pytest.mark.parametrize("n", [256, 300, 1000, 2048])
def test_the_longest_strips_under_a_causal_mask_have_only_visible_pairs(wide, n):
    strips = schedule(Causal(), n, n, 0, CPU).strips((range(-(-n // SIDE)),), wide)
    _, count, offset = strips.with_diagonals[0].unbind(1)
    assert offset[0] + 2 * wide - 2 == 0
    assert count[0] == count.max() == -(-n // SIDE)
    # As many pairs as there are, up to whole strips.
    pairs = -(-n // SIDE) // 2 + 1
    assert strips.count == -(-pairs // wide)


@pytest.mark.parametrize("wide", [2, 3])
def test_the_pairs_of_a_strip_are_found_by_their_diagonal(wide):
    bands = (range(9), range(9, 16))
    strips = schedule(Causal(), 1000, 1000, 0, CPU).strips(bands, wide)
    places = []
    for band, pairs, base in zip(bands, strips.pairs, strips.first, strict=True):
        for number, place in enumerate(pairs[0].tolist()):
            if place >= 0:
                first, count, offset = strips.with_diagonals[0, place // wide].tolist()
                assert band.start <= first <= first + count <= band.stop
                assert offset + 2 * (place % wide) == 2 * (base + number)
                places.append(place)
    assert sorted(places) == [*range(wide * strips.count)]


@pytest.mark.parametrize("name", MASKS)
def test_what_a_row_sees_on_average(name):
    seen = allowed(MASKS[name], 300).float().sum(2).mean().item()
    assert schedule(MASKS[name], 300, 300, 0, CPU).seen_by_row == pytest.approx(seen)


def test_a_mask_with_two_intervals_in_a_row_has_no_schedule():
    mask = StreamingSinks(window=32, sinks=4)
    assert schedule(mask, 300, 300, 0, CPU) is None
    x = torch.zeros(1, 1, 300, 16)
    with pytest.raises(BackendError, match="one interval of keys per query"):
        intervals(problem_of(x, x, x, Options(mask)))


@pytest.mark.parametrize("name", every_mask(33, 65, 2, 2))
def test_a_schedule_is_there_if_and_only_if_the_mask_has_spans(name):
    mask = every_mask(33, 65, 2, 2)[name]
    has = mask is None or mask.spans(torch.arange(33)) is not None
    assert (schedule(mask, 33, 65, 0, CPU) is not None) == has
