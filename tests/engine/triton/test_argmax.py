"""Keys of largest scores from the tiles that they are in: rows by tile, and who looks at them."""

from __future__ import annotations

import pytest
import torch

from regard.engine.inputs import Options, problem_of
from regard.engine.riders import Streamed
from regard.engine.triton import hopper
from regard.engine.triton.hopper.argmax import kernel as argmax_kernel
from regard.engine.triton.hopper.argmax import launch as argmax
from regard.engine.triton.operands import Operands
from regard.masks import Causal, Window

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


class ArgmaxKernel:
    """The argmax kernel in torch: Gluon has no interpreter."""

    def __getitem__(self, grid):
        return self.find

    def find(
        self, *, COUNT, GROUPS, NUMBERS, Q, K, LOW, HIGH, LSE, ARGMAX, FIRST_WEIGHT, scale, q_len, k_len,
        group,
        parts, first, BLOCK_K, HAS_FIRST, **_,
    ):  # fmt: skip
        at_key = torch.arange(k_len)
        low, high = (x.reshape(-1, q_len, 1)[0] for x in (LOW, HIGH))
        assert all(x.data_ptr() % 16 == 0 for x in (COUNT, GROUPS, NUMBERS))
        count = Q.shape[0] * Q.shape[1] * parts
        table, key, mass = GROUPS.view(count, -1, 4), ARGMAX.view(-1, q_len), FIRST_WEIGHT.view(-1, q_len)
        for at_part, made in enumerate(COUNT[:count].tolist()):
            at_map = at_part // parts
            q, k = Q.flatten(0, 1)[at_map], K.flatten(0, 1)[at_map // group]
            scores = (q.float() @ k.float().mT).where((at_key >= low) & (at_key < high), -torch.inf)
            for tile, begin, end, _ in table[at_part, :made].tolist():
                assert 0 < end - begin <= 64
                rows = NUMBERS[at_map * q_len + begin : at_map * q_len + end].long()
                some = scores[rows, tile * BLOCK_K : (tile + 1) * BLOCK_K]
                key[at_map, rows] = some.argmax(1) + tile * BLOCK_K
                if HAS_FIRST:
                    weights = scores[rows, :first] * scale - LSE.flatten(0, 1)[at_map, rows, None]
                    mass[at_map, rows] = weights.exp().sum(1)


@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.parametrize(("rows", "tiles", "part_rows"), [(1, 1, 1), (70, 3, 70), (130, 20, 50)])
def test_rows_are_sorted_by_their_tile(device, rows, tiles, part_rows, first):
    torch.manual_seed(0)
    tile = torch.randint(-1, tiles, (3, rows), dtype=torch.int32)
    # One map without any tile, one in which all rows have the same.
    tile[1], tile[2] = -1, tiles - 1
    parts, groups = -(-rows // part_rows), tiles + part_rows // 8
    ends, numbers = torch.full((3, parts, tiles), 77, dtype=torch.int32), torch.full_like(tile, -7)
    made, table = ends.new_empty(3, parts), ends.new_empty(3, parts, groups, 4)
    key, mass = torch.full((3, rows), 5), torch.full((3, rows), 5.0)
    there = [x.to(device) for x in (tile, ends, made, table, numbers, key, mass)]
    options = {"HAS_FIRST": first > 0, "GROUP": 8, "ROWS": 32, "TILES": 8}
    argmax_kernel.group_by_tile_kernel[(3, parts)](*there, rows, tiles, part_rows, groups, **options)
    _, _, made, table, numbers, key, mass = (x.cpu() for x in there)
    assert (made <= groups).all()
    for at_map in range(3):
        seen = []
        for part in range(parts):
            for number, begin, end, _ in table[at_map, part, : made[at_map, part]].tolist():
                some = numbers[at_map, begin:end].long()
                assert 0 < len(some) <= 8
                assert (tile[at_map, some] == number).all()
                seen += some.tolist()
        assert sorted(seen) == (tile[at_map] >= 0).nonzero().flatten().tolist()
    dead = tile < 0
    assert torch.equal(key, torch.where(dead, -1, 5))
    assert torch.equal(mass, torch.where(dead & (first > 0), 0.0, 5.0))


@pytest.mark.parametrize("mask", [None, Causal()], ids=["none", "causal"])
@pytest.mark.parametrize("first", [0, 4])
def test_from_tiles_to_keys_and_the_weight_of_the_first(device, monkeypatch, mask, first):
    if not HOPPER:
        monkeypatch.setattr(argmax, "hopper_argmax_kernel", ArgmaxKernel())
    for name, value in (("ROWS", 64), ("PART_ROWS", 128)):
        monkeypatch.setattr(argmax, name, value)
    n, block = 300, 128
    torch.manual_seed(0)
    q, k = (torch.randn(1, heads, n, 64).half().to(device) for heads in (6, 3))
    problem = problem_of(q, k, k, Options(mask))
    scores = q.float() @ k.float().repeat_interleave(2, 1).mT
    if mask is not None:
        scores = scores.where(torch.ones(n, n, device=device).tril() > 0, -torch.inf)
    lse = (scores / 8).logsumexp(-1)
    key = lse.new_empty(lse.shape, dtype=torch.int64)
    result = Streamed(k, lse, argmax=key, first=torch.empty_like(lse) if first else None)
    wanted = scores.argmax(-1)
    argmax.find_argmax(Operands(problem), (wanted // block).int()[..., None], result, first, block)
    assert (key == wanted).float().mean() > 0.999
    if result.first is not None:
        weights = (scores / 8 - lse[..., None]).exp()[..., :first]
        torch.testing.assert_close(result.first, weights.sum(-1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("mask", "n", "dims"),
    [
        (None, 1000, {64, 128}),
        (None, 3000, {128}),
        (None, 5000, set()),
        (Causal(), 5000, {128}),
        (Causal(), 9000, set()),
        (Causal() & Window(500), 9000, {64, 128}),
    ],
)
def test_rows_that_see_few_keys_need_no_second_look(mask, n, dims):
    found = set()
    for dim in (64, 128):
        q, k, v = torch.empty(3, 1, 1, n, dim, dtype=torch.bfloat16).unbind()
        if hopper.finds_argmax(problem_of(q, k, v, Options(mask))):
            found.add(dim)
    assert found == dims
