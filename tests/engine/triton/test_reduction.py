"""The small kernels around the second pass for Hopper, against plain torch."""

from __future__ import annotations

import math

import pytest
import torch

from regard.engine.triton.hopper.second_pass import reduction
from regard.engine.triton.schedule.intervals import SIDE, schedule
from regard.masks import Causal


def test_bounds_are_in_units_of_log_2_and_infinite_where_there_is_nothing(device):
    lse = torch.randn(2, 70, device=device)
    lse[:, 5] = -torch.inf
    bound = torch.full((2, 2 * SIDE), torch.nan, device=device)
    reduction.lse2_kernel[(2, 2)](lse, bound, 70, SIDE=SIDE)
    assert (bound[:, 70:] == torch.inf).all()
    assert (bound[:, 5] == torch.inf).all()
    alive = torch.arange(70, device=device) != 5
    torch.testing.assert_close(bound[:, :70][:, alive], lse[:, alive] / math.log(2))


@pytest.mark.parametrize("before", [0, 1])
def test_what_keys_receive_is_added_up_per_key_and_per_block(device, before):
    n, blocks = 300, 5
    seen = schedule(Causal(), n, n, 0, torch.device(device)).seen
    column = torch.randn(2, 3, blocks, blocks * SIDE, device=device)
    # The first two rows of blocks belong to another launch.
    total = torch.full((2, 3, n), 1.0 if before else torch.nan, device=device)
    block = torch.zeros(2, 3, 2 + blocks, blocks, device=device)
    sizes = (3, 0, 0, blocks, blocks, n, 2, 2 + blocks, before)
    reduction.reduce_columns_kernel[(blocks, 6)](
        column, seen, total, block, *sizes, COLUMNS=True, BLOCKS=True, SIDE=SIDE
    )
    q_block, key = torch.arange(blocks)[:, None], torch.arange(blocks * SIDE)[None, :]
    wanted = column.cpu() * (key // SIDE <= q_block)
    torch.testing.assert_close(total.cpu(), before + wanted.sum(2)[..., :n])
    torch.testing.assert_close(block.cpu()[:, :, 2:], wanted.unflatten(3, (blocks, SIDE)).sum(4))
    assert (block[:, :, :2] == 0).all()


def left_behind(tile: torch.Tensor) -> torch.Tensor:
    """What a warpgroup leaves behind of 2 SIDE keys and SIDE queries: see hopper/diagonals.py."""
    from regard.engine.triton.hopper.second_pass.diagonals import PARTIALS

    key, query = torch.arange(2 * SIDE)[:, None], torch.arange(SIDE)[None, :]
    warp, second, row = key % SIDE // 16, key % 16 // 8, key % 8
    line = torch.where(key < SIDE, 9, 1) - second + query // 8
    at = line * 256 + warp * 64 + row * 8 + query % 8
    left = torch.zeros(*tile.shape[:-2], PARTIALS.value, device=tile.device)
    return left.index_add_(-1, at.flatten().to(tile.device), tile.flatten(-2))


@pytest.mark.parametrize("wide", [2, 3])
@pytest.mark.parametrize("bands", [(range(5),), (range(2), range(2, 5))], ids=["whole", "cut"])
def test_what_strips_leave_behind_is_added_along_its_diagonals(device, wide, bands):
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    n = 300
    strips = schedule(Causal(), n, n, 0, torch.device(device)).strips(bands, wide)
    tiles = torch.randn(2, 3, strips.count, wide, 2 * SIDE, SIDE, device=device)
    left = left_behind(tiles)
    total = torch.ones(2, 3, 2 * n - 1, device=device)
    for some, first in zip(strips.pairs, strips.first, strict=True):
        pairs = some.shape[1]
        sizes = (3, wide * strips.count, 0, first, pairs, n, 2 * n - 1, 1)
        kernel = reduction.reduce_diagonals_kernel[(2 * (pairs + 1), 6)]
        kernel(left, some, total, *sizes, SIDE=SIDE, PARTIALS=left.shape[-1])
    wanted = torch.ones(2, 3, 2 * n - 1)
    key, query = torch.arange(2 * SIDE)[:, None], torch.arange(SIDE)[None, :]
    for strip in range(strips.count):
        offset = int(strips.with_diagonals[0, strip, 2])
        # Pairs of diagonals have numbers; a strip may begin with any of them.
        assert offset % 2 == 0
        for part in range(wide):
            at = ((offset + 2 * part) * SIDE + key - query + n - 1).flatten()
            there = (at >= 0) & (at < 2 * n - 1)
            wanted.index_add_(2, at[there], tiles[:, :, strip, part].flatten(2)[..., there.to(device)].cpu())
    torch.testing.assert_close(total.cpu(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("q", "k"), [(300, 300), (70, 500), (500, 70), (64, 64), (1, 130)])
@pytest.mark.parametrize("wide", [2, 3])
def test_without_a_mask_every_diagonal_is_written(device, wide, q, k):
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    from regard.engine.triton.hopper.second_pass.diagonals import PARTIALS

    strips = schedule(None, q, k, k - q, torch.device(device)).strips((range(-(-q // SIDE)),), wide)
    left = torch.zeros(1, 1, strips.count, wide, PARTIALS.value, device=device)
    total = torch.full((1, 1, q + k - 1), torch.nan, device=device)
    ((some, first),) = zip(strips.pairs, strips.first, strict=True)
    pairs = some.shape[1]
    sizes = (1, wide * strips.count, 0, first, pairs, q, q + k - 1, 0)
    reduction.reduce_diagonals_kernel[(2 * (pairs + 1), 1)](
        left, some, total, *sizes, SIDE=SIDE, PARTIALS=PARTIALS.value
    )
    assert (total == 0).all()


@pytest.mark.parametrize("pool", [16, 64, 192])
def test_bands_of_any_size_make_one_overview(monkeypatch, device, pool):
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    from regard.engine.inputs import Options, problem_of
    from regard.engine.lazy_zeros import LazyZeros
    from regard.engine.triton.hopper.second_pass import sweep
    from regard.engine.triton.second_pass.sweep import SweepRequest, SweepResult

    class Nothing:
        def __getitem__(self, grid):
            return lambda *_, **__: None

    monkeypatch.setattr(sweep, "lse2_kernel", Nothing())
    q, k = torch.zeros(1, 2, 700, 64, device=device), torch.zeros(1, 2, 500, 64, device=device)
    problem = problem_of(q, k, k, Options())
    ask = SweepRequest(pool=pool, pool_sums=True, pool_maxima=True)
    state = sweep._Sweep(problem, torch.zeros(1, 2, 700, device=device), ask, SweepResult(), LazyZeros())
    state.lazy_zeros.clear_all()
    high, wide = state.part
    parts = torch.rand(1, 2, 11 * SIDE // high, 8 * SIDE // wide, device=device)
    for first in range(0, 11, 4):
        band = range(first, min(first + 4, 11))
        some = parts[:, :, band.start * SIDE // high : band.stop * SIDE // high].contiguous()
        state._add_pooled(state.found.pool_sums, some, (high, wide), band, largest=False)
        state._add_pooled(state.found.pool_maxima, some, (high, wide), band, largest=True)
    whole = torch.nn.functional.pad(
        parts, (0, -parts.shape[3] % (pool // wide), 0, -parts.shape[2] % (pool // high))
    )
    blocks = whole.unflatten(3, (-1, pool // wide)).unflatten(2, (-1, pool // high))
    shape = state.found.pool_sums.shape
    wanted = (x[..., : shape[2], : shape[3]] for x in (blocks.sum((3, 5)), blocks.amax((3, 5))))
    for got, want in zip((state.found.pool_sums, state.found.pool_maxima), wanted, strict=True):
        torch.testing.assert_close(got, want)
