"""The small kernels around the second pass for Hopper, against plain torch."""

from __future__ import annotations

import math

import pytest
import torch

from regard.engine.triton.hopper import gathering
from regard.engine.triton.schedule import SIDE, STRIP, schedule
from regard.masks import Causal


def marks(lse: torch.Tensor, tops: torch.Tensor, k: int, scale: float) -> tuple[torch.Tensor, ...]:
    maps, rows = lse.shape
    blocks = -(-rows // SIDE)
    mark, factor = torch.full((2, maps, blocks * SIDE), torch.nan, device=lse.device).unbind()
    redo = torch.zeros(maps, blocks, dtype=torch.int32, device=lse.device)
    gathering.marks_kernel[(blocks, maps)](
        lse, tops, mark, factor, redo, scale, rows, K=k, CLASSES=tops.shape[-1], SIDE=SIDE
    )
    return mark, factor, redo


def test_the_mark_is_the_kth_largest_class_maximum_and_a_little_less(device):
    tops, lse = torch.randn(2, 70, 16, device=device) * 5, torch.randn(2, 70, device=device) + 9
    mark, factor, redo = marks(lse, tops, 5, 0.3)
    wanted = tops.topk(5, -1).values[..., 4] * 0.3 / math.log(2)
    assert (mark[:, :70] < wanted).all()
    torch.testing.assert_close(mark[:, :70], wanted, rtol=1e-5, atol=1e-4)
    assert (redo == 0).all()
    torch.testing.assert_close(factor[:, :70], (mark[:, :70] * math.log(2) - lse).exp(), rtol=1e-5, atol=0)


def test_without_top_keys_the_mark_is_lse(device):
    lse = torch.randn(2, 70, device=device)
    mark, *_ = marks(lse, lse[..., None], 0, 0.3)
    torch.testing.assert_close(mark[:, :70], lse / math.log(2))


def test_rows_that_are_dead_or_not_there_are_above_no_mark(device):
    tops, lse = torch.full((1, 70, 16), -torch.inf, device=device), torch.zeros(1, 70, device=device)
    tops[:, 3, :2] = 1.0
    lse[:, 5] = -torch.inf
    tops[:, 64:] = torch.arange(16.0)
    mark, factor, redo = marks(lse, tops, 5, 1.0)
    assert (mark[0, [5, 70, 127]] == torch.inf).all()
    assert (factor[0, [5, 70, 127]] == 0).all()
    # Too few classes: nothing is a candidate, and the block is searched again.
    assert (mark[0, 3], factor[0, 3]) == (1, 2)
    assert redo.tolist() == [[1, 0]]


def test_keys_of_hardly_any_weight_are_searched_for_afterwards(device):
    tops, lse = torch.full((1, 64, 16), -300.0, device=device), torch.zeros(1, 64, device=device)
    mark, factor, redo = marks(lse, tops, 5, 1.0)
    assert (mark == 1).all()
    assert (factor == 2).all()
    assert redo.tolist() == [[1]]


@pytest.mark.parametrize("grain", [64, 128])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
def test_largest_scores_of_tiles_become_those_of_classes_and_of_blocks(device, grain, mask):
    q_len, k_len, classes, scale = 300, 600, 2, 0.5
    table = schedule(mask, q_len, k_len, k_len - q_len, torch.device(device))
    blocks, _ = table.blocks(128, 128)
    first, rows, lines = 128, 256, -(-k_len // 128) * (128 // grain)
    tops, lse = torch.randn(2, lines, rows, device=device), torch.randn(2, q_len, device=device)
    tops[1, 0, 7] = -1e37 / (scale * 1.44)
    found = torch.full((2, q_len, classes), torch.nan, device=device)
    high = torch.full((2, -(-q_len // grain), -(-k_len // grain)), torch.nan, device=device)
    sizes = (scale, q_len, 2, 0, first, rows, lines, *high.shape[1:])
    gathering.tops_kernel[(rows // 128, 2)](
        tops, lse, blocks, found, high, *sizes,
        TOPS=True, HIGHEST=True, CLASSES=classes, GRAIN=grain, BLOCK_Q=128, BLOCK_K=128,
    )  # fmt: skip
    there = q_len - first
    run = blocks[0, 1:].repeat_interleave(128, 0)[:there] * (128 // grain)
    line = torch.arange(lines, device=device)
    visited = (line >= run[:, :1]) & (line < run[:, 1:2])
    seen = tops.mT[:, :there].where(visited, -torch.inf)
    seen[1, 7, 0] = -torch.inf
    paired = torch.nn.functional.pad(seen, (0, -lines % classes), value=-torch.inf)
    torch.testing.assert_close(found[:, first:], paired.unflatten(2, (-1, classes)).amax(2))
    weight = (seen * scale - lse[:, first:, None]).exp()[..., : high.shape[2]]
    whole = torch.nn.functional.pad(weight, (0, 0, 0, -there % grain)).unflatten(1, (-1, grain)).amax(2)
    torch.testing.assert_close(high[:, first // grain :], whole)
    assert high[:, : first // grain].isnan().all()


def test_what_keys_receive_is_added_up_per_key_and_per_block(device):
    n, blocks = 300, 5
    seen = schedule(Causal(), n, n, 0, torch.device(device)).seen
    column = torch.randn(2, 3, blocks, blocks * SIDE, device=device)
    total, block = torch.ones(2, 3, n, device=device), torch.empty(2, 3, blocks, blocks, device=device)
    gathering.columns_kernel[(blocks, 6)](
        column, seen, total, block, 3, 0, 0, blocks, blocks, n, COLUMNS=True, BLOCKS=True, SIDE=SIDE
    )
    q_block, key = torch.arange(blocks)[:, None], torch.arange(blocks * SIDE)[None, :]
    wanted = column.cpu() * (key // SIDE <= q_block)
    torch.testing.assert_close(total.cpu(), 1 + wanted.sum(2)[..., :n])
    torch.testing.assert_close(block.cpu(), wanted.unflatten(3, (blocks, SIDE)).sum(4))


def test_what_warps_noted_goes_into_the_lists_of_its_queries(device):
    slots, k_blocks, band_first, places = 2, 3, 5, 8
    pairs = k_blocks // 2 + 1
    generator = torch.Generator().manual_seed(0)
    hit = torch.rand(2, slots, pairs, 128, 2, 32, generator=generator) < 0.004
    hit[1, 1, 0, 77] = True
    some = hit.flatten(4).any(4).unflatten(3, (4, 32))  # (maps, slots, pairs, warps, threads)
    warps, threads = (
        (bits.long() << torch.arange(32)).sum(-1).to(torch.int32).to(device) for bits in (some, hit)
    )
    threads = threads.view(torch.int64)
    length = torch.zeros(2, slots * SIDE, dtype=torch.int32, device=device)
    lists = torch.full((2, slots * SIDE, places), -1, dtype=torch.int32, device=device)
    gathering.hits_kernel[(4,)](
        warps, threads, length, lists, 2, slots * pairs * 4, pairs, slots * SIDE, band_first,
        PLACES=places, SIDE=SIDE, WORDS=8,
    )  # fmt: skip
    wanted: dict[tuple[int, int], set[int]] = {}
    for at_map, slot, pair, thread, half, bit in hit.nonzero().tolist():
        # Two neighbouring queries of every eight, and two keys, eight apart.
        query = slot * SIDE + bit % 16 // 2 * 8 + thread % 4 * 2 + bit % 2
        k_block = 2 * pair - (band_first + slot) % 2 + half
        key = k_block * SIDE + thread // 32 * 16 + thread % 32 // 4 + bit // 16 * 8
        wanted.setdefault((at_map, query), set()).add(key)
    counts = torch.zeros_like(length)
    for (at_map, query), keys in wanted.items():
        counts[at_map, query] = len(keys)
        found = lists[at_map, query].tolist()
        assert set(found) - {-1} <= keys
        assert len(set(found) - {-1}) == min(len(keys), places)
    assert torch.equal(length, counts)


def test_the_heaviest_candidates_are_chosen_and_ties_go_to_earlier_keys(device):
    places, rows, k, n = 8, 20, 3, 200
    length = torch.randint(3, places + 1, (2, SIDE), dtype=torch.int32)
    length[:, 7], length[:, 9] = 9, 0
    lists = torch.stack([torch.randperm(n)[:places] for _ in range(2 * SIDE)]).view(2, SIDE, places)
    queries, keys = torch.randn(1, 2, 30, 16), torch.randn(1, 1, n, 16)
    keys[:, :, 50:] = keys[:, :, 50:100].repeat(1, 1, 3, 1)
    lse = torch.randn(2, 30)
    got, key = torch.empty(2, 30, k, device=device), torch.empty(2, 30, k, dtype=torch.int64, device=device)
    redo = torch.zeros(2, 1, dtype=torch.int32, device=device)
    q, kk, bound, listed = (x.to(device) for x in (queries, keys, lse, lists.to(torch.int32)))
    gathering.select_kernel[(2, 2)](
        q, kk, bound, length.to(device), listed, got, key, redo, *q.stride()[:3], *kk.stride()[:3], 0.4,
        rows, SIDE, 30, 10, 1, 2, 2, TOP=k, DIM=16, PLACES=places, ROWS=16, SIDE=SIDE, AT_ONCE=2,
    )  # fmt: skip
    for at_map in range(2):
        for row in range(rows):
            some = lists[at_map, row, : min(int(length[at_map, row]), places)]
            score = (keys[0, 0, some] * queries[0, at_map, 10 + row]).sum(-1) * 0.4 - lse[at_map, 10 + row]
            pairs = sorted(zip((-score).tolist(), some.tolist(), strict=True))[:k]
            pairs = [(math.exp(-x), number) for x, number in pairs] or [(0.0, -1)] * k
            assert got[at_map, 10 + row].tolist() == pytest.approx([weight for weight, _ in pairs], rel=1e-5)
            if len({round(weight, 5) for weight, _ in pairs}) == k:
                assert key[at_map, 10 + row].tolist() == [number for _, number in pairs]
    assert redo.tolist() == [[1], [1]]


def test_what_strips_leave_behind_is_added_along_its_diagonals(device):
    n, blocks = 300, 5
    strips = schedule(Causal(), n, n, 0, torch.device(device)).strips(range(blocks))
    parts = STRIP // 2
    cells = torch.randn(2, 3, strips.count, parts, SIDE, 2 * SIDE, device=device)
    total = torch.ones(2, 3, 2 * n - 1, device=device)
    pairs = strips.pairs.shape[1]
    sizes = (3, parts * strips.count, 0, strips.first, pairs, n, 2 * n - 1)
    gathering.diagonals_kernel[(2 * (pairs + 1), 6)](cells, strips.pairs, total, *sizes, SIDE=SIDE)
    wanted = torch.ones(2, 3, 2 * n - 1)
    row, col = torch.arange(SIDE)[:, None], torch.arange(2 * SIDE)[None, :]
    for strip in range(strips.count):
        offset = int(strips.table[0, strip, 2])
        assert offset % STRIP == 0
        for part in range(parts):
            at = ((offset + 2 * part) * SIDE + col - row + n - 1).flatten()
            there = (at >= 0) & (at < 2 * n - 1)
            wanted.index_add_(2, at[there], cells[:, :, strip, part].flatten(2)[..., there].cpu())
    torch.testing.assert_close(total.cpu(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("pool", [16, 64, 192])
def test_bands_of_any_size_make_one_overview(monkeypatch, pool):
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    from regard.engine.inputs import Options, problem_of
    from regard.engine.triton.hopper import survey
    from regard.engine.triton.survey import Question, Survey

    class Nothing:
        def __getitem__(self, grid):
            return lambda *_, **__: None

    monkeypatch.setattr(survey, "marks_kernel", Nothing())
    q, k = torch.zeros(2, 2, 700, 64).unbind(), torch.zeros(1, 2, 500, 64)
    problem = problem_of(q[0][None], k, k, Options())
    ask = Question(pool=pool, pool_sums=True, pool_maxima=True)
    sweep = survey._Sweep(problem, torch.zeros(1, 2, 700), ask, None, Survey())
    high, wide = sweep.part
    parts = torch.rand(1, 2, 11 * SIDE // high, 8 * SIDE // wide)
    for first in range(0, 11, 4):
        band = range(first, min(first + 4, 11))
        some = parts[:, :, band.start * SIDE // high : band.stop * SIDE // high]
        sweep._put(sweep.found.pool_sums, some, (high, wide), band, largest=False)
        sweep._put(sweep.found.pool_maxima, some, (high, wide), band, largest=True)
    whole = torch.nn.functional.pad(
        parts, (0, -parts.shape[3] % (pool // wide), 0, -parts.shape[2] % (pool // high))
    )
    blocks = whole.unflatten(3, (-1, pool // wide)).unflatten(2, (-1, pool // high))
    shape = sweep.found.pool_sums.shape
    wanted = (x[..., : shape[2], : shape[3]] for x in (blocks.sum((3, 5)), blocks.amax((3, 5))))
    for got, want in zip((sweep.found.pool_sums, sweep.found.pool_maxima), wanted, strict=True):
        torch.testing.assert_close(got, want)
