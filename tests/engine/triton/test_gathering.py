"""The small kernels around the second pass for Hopper, against plain torch."""

from __future__ import annotations

import math

import pytest
import torch

from regard.engine.triton.hopper import gathering
from regard.engine.triton.schedule import SIDE, STRIP, schedule
from regard.masks import Causal


def bounds(lse: torch.Tensor, tops: torch.Tensor, k: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    maps, rows = lse.shape
    blocks = -(-rows // SIDE)
    bound, threshold = torch.full((2, maps, blocks * SIDE), torch.nan, device=lse.device).unbind()
    gathering.bounds_kernel[(blocks, maps)](
        lse, tops, bound, threshold, scale, rows, K=k, CLASSES=tops.shape[-1], SIDE=SIDE
    )
    return bound, threshold


def test_the_threshold_is_the_kth_largest_class_maximum_and_a_little_less(device):
    tops, lse = torch.randn(2, 70, 16, device=device) * 5, torch.randn(2, 70, device=device)
    bound, threshold = bounds(lse, tops, 5, 0.3)
    wanted = (tops.topk(5, -1).values[..., 4] * 0.3 - lse) / math.log(2)
    torch.testing.assert_close(bound[:, :70], lse / math.log(2))
    assert (threshold[:, :70] < wanted).all()
    torch.testing.assert_close(threshold[:, :70], wanted, rtol=1e-5, atol=1e-5)


def test_rows_that_are_dead_or_not_there_are_above_no_threshold(device):
    tops, lse = torch.full((1, 70, 16), -torch.inf, device=device), torch.zeros(1, 70, device=device)
    tops[:, 3, :2] = 1.0
    lse[:, 5] = -torch.inf
    bound, threshold = bounds(lse, tops, 5, 1.0)
    assert (bound[0, [5, 70, 127]] == torch.inf).all()
    assert (threshold[0, [5, 70, 127]] == torch.inf).all()
    # Too few classes: everything that may be seen is a candidate.
    assert threshold[0, 3] < -1e35


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


def test_the_heaviest_candidates_are_chosen_and_ties_go_to_earlier_keys(device):
    places, rows, k = 4, 20, 3
    length = torch.full((1, SIDE), 3, dtype=torch.int32, device=device)
    length[:, 7], length[:, 9] = 9, 0
    first = (
        torch.tensor([130, 3, 64, 7], dtype=torch.int32, device=device).expand(1, SIDE, places).contiguous()
    )
    scores = -torch.rand(1, SIDE, places, 4, device=device) * 9
    scores[:, 4] = -1
    got = torch.empty(1, rows, k, device=device)
    key = torch.empty(1, rows, k, dtype=torch.int64, device=device)
    redo = torch.zeros(1, 1, dtype=torch.int32, device=device)
    sizes = (rows, SIDE, rows, 0, 1)
    gathering.select_kernel[(2, 1)](
        length, scores, first, got, key, redo, *sizes, K=k, PLACES=places, ROWS=16, SIDE=SIDE
    )
    weight = scores[0].exp2()
    keys = first[0, :, :, None] + torch.tensor([0, 8, SIDE, SIDE + 8], device=device)
    for row in range(rows):
        listed = min(int(length[0, row]), places)
        found = (x[row, :listed].flatten().tolist() for x in (weight, keys))
        best = sorted(zip(*found, strict=True), key=lambda pair: (-pair[0], pair[1]))[:k] or [(0.0, -1)] * k
        assert key[0, row].tolist() == [number for _, number in best]
        assert got[0, row].tolist() == pytest.approx([weight for weight, _ in best])
    assert redo.item() == 1


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
