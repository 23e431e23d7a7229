"""The small kernels around the second pass for Hopper, against plain torch."""

from __future__ import annotations

import torch

from regard.engine.triton.hopper import gathering
from regard.engine.triton.schedule import SIDE, STRIP, schedule
from regard.masks import Causal


def test_the_threshold_is_the_kth_largest_class_maximum_and_a_little_less(device):
    tops = torch.randn(70, 32, device=device)
    tau = torch.empty(70, device=device)
    gathering.threshold_kernel[(2,)](tops, tau, 70, K=5, CLASSES=32, ROWS=64)
    wanted = tops.topk(5, -1).values[:, 4]
    assert (tau <= wanted).all()
    torch.testing.assert_close(tau, wanted, rtol=2e-6, atol=0)


def test_a_row_with_too_few_classes_has_no_threshold(device):
    tops = torch.full((3, 32), -torch.inf, device=device)
    tops[:, :2] = 1.0
    tau = torch.empty(3, device=device)
    gathering.threshold_kernel[(1,)](tops, tau, 3, K=5, CLASSES=32, ROWS=64)
    assert (tau == -torch.inf).all()


def test_the_heaviest_candidates_are_chosen_and_ties_go_to_earlier_keys(device):
    places, group, rows, k = 4, 16, 20, 3
    count = torch.full((1, 1, rows), 3, dtype=torch.int32, device=device)
    count[..., 7], count[..., 9] = 9, 0
    weight = torch.rand(1, 1, rows, places, group, device=device)
    weight[..., 4, :, :] = 0.5
    # Groups 0, 2 and 9: the first two are in the first block of keys, the last in the third.
    at = torch.tensor([9, 0, 2, 3], dtype=torch.int32, device=device).expand(1, 1, rows, places).contiguous()
    got = torch.empty(1, 1, rows, k, device=device)
    key = torch.empty(1, 1, rows, k, dtype=torch.int64, device=device)
    redo = torch.zeros(1, 1, 1, dtype=torch.int32, device=device)
    gathering.select_kernel[(2, 1)](
        count,
        weight,
        at,
        got,
        key,
        redo,
        rows,
        rows,
        0,
        1,
        K=k,
        PLACES=places,
        GROUP=group,
        ROWS=16,
        SIDE=SIDE,
    )
    inside = torch.arange(group, device=device)
    keys = (at[..., None] // 4) * SIDE + inside // 2 * 8 + at[..., None] % 4 * 2 + inside % 2
    for row in range(rows):
        listed = min(int(count[0, 0, row]), places)
        found = (x[0, 0, row, :listed].flatten().tolist() for x in (weight, keys))
        best = sorted(zip(*found, strict=True), key=lambda pair: (-pair[0], pair[1]))[:k] or [(0.0, -1)] * k
        assert list(zip(got[0, 0, row].tolist(), key[0, 0, row].tolist(), strict=True)) == best
    assert redo.item() == 1


def test_what_strips_leave_behind_is_added_along_its_diagonals(device):
    n, blocks = 300, 5
    strips = schedule(Causal(), n, n, 0, torch.device(device)).strips(range(blocks))
    cells = torch.randn(2, 3, strips.count, 2, SIDE, 2 * SIDE, device=device)
    total = torch.ones(2, 3, 2 * n - 1, device=device)
    halves = strips.halves.shape[1]
    gathering.diagonals_kernel[(2 * (halves + 1), 6)](
        cells, strips.halves, total, 3, strips.count, 0, strips.first, halves, n, 2 * n - 1, SIDE=SIDE
    )
    wanted = torch.ones(2, 3, 2 * n - 1)
    row, col = torch.arange(SIDE)[:, None], torch.arange(2 * SIDE)[None, :]
    for strip in range(strips.count):
        offset = int(strips.table[0, strip, 2])
        assert offset % STRIP == 0
        for half in range(2):
            at = ((offset + 2 * half) * SIDE + col - row + n - 1).flatten()
            there = (at >= 0) & (at < 2 * n - 1)
            wanted.index_add_(2, at[there], cells[:, :, strip, half].flatten(2)[..., there].cpu())
    torch.testing.assert_close(total.cpu(), wanted, rtol=1e-5, atol=1e-4)
