"""What follows from the largest scores of tiles, kernel by kernel, against plain torch."""

from __future__ import annotations

import math

import pytest
import torch

from regard.engine.inputs import Options, problem_of
from regard.engine.riders import Riders, Streamed
from regard.engine.triton import configs, operands
from regard.engine.triton.hopper import tops, tops_kernel
from regard.engine.triton.schedule import SIDE, schedule
from regard.masks import Causal


def told(tops, lse, blocks, *, scale, first=0, top=0, grain=64, classes=16, high=None):
    """Marks and blocks to do again, of (maps, lines, rows) largest scores."""
    (maps, lines, rows), q_len = tops.shape, lse.shape[-1]
    mark = torch.full((maps, q_len), torch.nan, device=tops.device)
    redo = torch.zeros(maps, -(-q_len // SIDE), dtype=torch.int32, device=tops.device)
    sizes = (q_len, maps, 0, first, rows, lines, *((0, 0) if high is None else high.shape[1:]), redo.shape[1])
    tops_kernel.tops_kernel[(rows // 128, maps)](
        tops, lse, blocks, mark, redo, mark if high is None else high, scale, *sizes,
        TOP=top, HIGHEST=high is not None, CLASSES=classes, GRAIN=grain, BLOCK_Q=128, BLOCK_K=128, SIDE=SIDE,
    )  # fmt: skip
    return mark, redo


def all_tiles(q_len: int, k_len: int, device):
    return schedule(None, q_len, k_len, 0, torch.device(device)).blocks(128, 128)[0]


def test_the_mark_is_the_kth_largest_class_maximum_and_a_little_less(device):
    tops, lse = torch.randn(2, 32, 128, device=device) * 5, torch.randn(2, 70, device=device) + 9
    mark, redo = told(tops, lse, all_tiles(70, 2048, device), scale=0.3, top=5)
    classes = tops.mT[:, :70].unflatten(2, (2, 16)).amax(2)
    wanted = classes.topk(5, -1).values[..., 4]
    assert (mark < wanted).all()
    torch.testing.assert_close(mark, wanted, rtol=1e-5, atol=1e-4)
    assert (redo == 0).all()


def test_no_score_is_above_the_mark_of_rows_that_are_dead_or_see_little(device):
    tops, lse = torch.full((1, 16, 128), -torch.inf, device=device), torch.zeros(1, 70, device=device)
    tops[:, :2, 3] = 1.0
    lse[:, 5] = -torch.inf
    tops[:, :, 64:] = torch.arange(16.0, device=device)[:, None]
    mark, redo = told(tops, lse, all_tiles(70, 1024, device), scale=1.0, top=5)
    assert (mark[0, [3, 5]] == torch.inf).all()
    # Too few classes: nothing is a candidate, and the block is searched again.
    assert redo.tolist() == [[1, 0]]


def test_keys_of_hardly_any_weight_are_searched_for_afterwards(device):
    tops, lse = torch.full((1, 16, 128), -300.0, device=device), torch.zeros(1, 64, device=device)
    mark, redo = told(tops, lse, all_tiles(64, 1024, device), scale=1.0, top=5)
    assert (mark == torch.inf).all()
    assert redo.tolist() == [[1]]


@pytest.mark.parametrize("grain", [64, 128])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
def test_largest_scores_of_tiles_become_the_largest_weights_of_blocks(device, grain, mask):
    q_len, k_len, scale = 300, 600, 0.5
    table = schedule(mask, q_len, k_len, k_len - q_len, torch.device(device))
    blocks, _ = table.blocks(128, 128)
    first, rows, lines = 128, 256, -(-k_len // 128) * (128 // grain)
    tops, lse = torch.randn(2, lines, rows, device=device), torch.randn(2, q_len, device=device)
    tops[1, 0, 7] = -1e37 / (scale * 1.44)
    high = torch.full((2, -(-q_len // grain), -(-k_len // grain)), torch.nan, device=device)
    told(tops, lse, blocks, scale=scale, first=first, grain=grain, classes=2, high=high)
    there = q_len - first
    run = blocks[0, 1:].repeat_interleave(128, 0)[:there] * (128 // grain)
    line = torch.arange(lines, device=device)
    visited = (line >= run[:, :1]) & (line < run[:, 1:2])
    seen = tops.mT[:, :there].where(visited, -torch.inf)
    seen[1, 7, 0] = -torch.inf
    weight = (seen * scale - lse[:, first:, None]).exp()[..., : high.shape[2]]
    whole = torch.nn.functional.pad(weight, (0, 0, 0, -there % grain)).unflatten(1, (-1, grain)).amax(2)
    torch.testing.assert_close(high[:, first // grain :], whole)
    assert high[:, : first // grain].isnan().all()


@pytest.mark.parametrize(("grain", "mask"), [(128, None), (64, Causal())], ids=["unmasked", "causal"])
def test_keys_at_or_above_the_mark_go_into_the_lists_of_their_queries(device, grain, mask):
    q_len, k_len, first, places = 300, 400, 128, 8
    table = schedule(mask, q_len, k_len, k_len - q_len, torch.device(device))
    blocks, _ = table.blocks(128, 128)
    rows, lines = 256, -(-k_len // 128) * (128 // grain)
    generator = torch.Generator().manual_seed(0)
    q, k = (
        torch.randn(1, 2, q_len, 16, generator=generator).half(),
        torch.randn(1, 1, k_len, 16, generator=generator).half(),
    )
    scores = (q[0].float() @ k[0].float().repeat_interleave(2, 0).mT)[:, first:]
    seen = table.low[0].cpu()[:, first:, None] <= torch.arange(k_len)
    seen &= torch.arange(k_len) < table.high[0].cpu()[:, first:, None]
    scores = scores.masked_fill(~seen, -torch.inf)
    # Halfway between two scores; one row has more candidates than places, one none.
    by_size = scores.sort(-1, descending=True).values
    mark = torch.full((2, q_len), torch.inf)
    mark[:, first:] = (by_size[..., 4] + by_size[..., 5]) / 2
    mark[:, first + 9] = (by_size[:, 9, 19] + by_size[:, 9, 20]) / 2
    mark[:, first + 5] = torch.inf
    padded = torch.nn.functional.pad(
        scores, (0, lines * grain - k_len, 0, rows - scores.shape[1]), value=-torch.inf
    )
    tops = padded.unflatten(2, (lines, grain)).amax(3).mT.contiguous()
    # What was not visited was not written.
    for block in range(2):
        start, stop = (blocks[0, block + 1, :2] * (128 // grain)).tolist()
        tops[:, :start, block * 128 : (block + 1) * 128] = 1e9
        tops[:, stop:, block * 128 : (block + 1) * 128] = 1e9
    q, k, mark, tops = (x.to(device) for x in (q, k, mark, tops))
    wanted = torch.full((2, lines, rows // 32), -1, dtype=torch.int32, device=device)
    tops_kernel.wanted_kernel[(2, 2, -(-lines // 4))](
        tops, mark, blocks, wanted, q_len, 2, 0, first, rows, lines,
        GRAIN=grain, BLOCK_Q=128, BLOCK_K=128, LINES=4,
    )  # fmt: skip
    length = torch.zeros(2, rows, dtype=torch.int32, device=device)
    lists = torch.full((2, rows, places), -1, dtype=torch.int32, device=device)
    tops_kernel.candidates_kernel[(2 * lines, 2)](
        wanted, tops.view(torch.int32), mark, q, k, table.low, table.high, length, lists,
        *q.stride()[:3], *k.stride()[:3], 0, 0, q_len, k_len, 2, 2, first, rows, lines,
        DIM=16, PLACES=places, GRAIN=grain, WORDS=4, GATHERED=16,
    )  # fmt: skip
    for at_map in range(2):
        for row in range(q_len - first):
            above = scores[at_map, row] >= mark[at_map, first + row].cpu()
            wanted = set(above.nonzero().flatten().tolist())
            assert length[at_map, row] == len(wanted)
            found = lists[at_map, row].tolist()
            assert set(found) - {-1} <= wanted
            assert len(set(found) - {-1}) == min(len(wanted), places)
    assert (length[:, q_len - first :] == 0).all()


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
    tops_kernel.select_kernel[(2, 2)](
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


@pytest.mark.parametrize(("mask", "band"), [(None, 1 << 29), (Causal(), 1 << 13)], ids=["whole", "bands"])
def test_from_the_largest_scores_of_tiles_to_top_keys_and_an_overview(device, monkeypatch, mask, band):
    # The blocks that are searched again are those of Hopper.
    monkeypatch.setattr(operands, "config", lambda kernel, *_: configs.TABLE[kernel, 9, 64])
    for name, value in (("BAND_BYTES", band), ("PROGRAMS", 1), ("CLASSES", 4)):
        monkeypatch.setattr(tops, name, value)
    n, top = 300, 2
    q, k = (torch.randn(1, heads, n, 64).half().to(device) for heads in (2, 1))
    problem = problem_of(q, k, k, Options(mask))
    scores = q.float() @ k.float().mT
    if mask is not None:
        scores = scores.where(torch.ones(n, n, device=device).tril() > 0, -torch.inf)
    lse = (scores / 8).logsumexp(-1)
    weight, high = lse.new_empty(1, 2, n, top), lse.new_empty(1, 2, 5, 5)
    key = lse.new_empty(weight.shape, dtype=torch.int64)
    result = Streamed(k, lse, top_weight=weight, top_key=key, highest=high, grain=64)
    telling = tops.Tops(operands.Operands(problem), Riders(tops=top, grain=64), result, (128, 128))
    padded = torch.nn.functional.pad(scores[0], (0, 384 - n, 0, 384 - n), value=-torch.inf)
    bands = list(telling.bands())
    for blocks, told in bands:
        assert told is not None
        some = padded[:, blocks.start * 128 : blocks.stop * 128].unflatten(2, (6, 64)).amax(3)
        told.scores.copy_(some.mT)
        telling.tell(told, blocks)
    telling.finish()
    assert len(bands) == (1 if mask is None else 3)
    weights = (scores / 8 - lse[..., None]).exp()
    wanted = weights.topk(top, -1)
    torch.testing.assert_close(weight, wanted.values, rtol=1e-4, atol=1e-6)
    there = wanted.values > 0
    assert (key == wanted.indices)[there].float().mean() > 0.99
    assert (key[~there] == -1).all()
    whole = torch.nn.functional.pad(weights, (0, 20, 0, 20)).unflatten(3, (5, 64)).unflatten(2, (5, 64))
    torch.testing.assert_close(high, whole.amax((3, 5)), rtol=1e-4, atol=1e-6)
