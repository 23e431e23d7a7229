"""What follows from the largest scores of tiles, kernel by kernel, against plain torch."""

from __future__ import annotations

import pytest
import torch

from benchmarks.families import FAMILIES, inputs
from regard.engine.inputs import Options, problem_of
from regard.engine.riders import Riders, Streamed
from regard.engine.triton import configs, operands
from regard.engine.triton.hopper.topk import (
    candidates,
    candidates_ptx,
    shared_tiles,
    shares,
    threshold_two_pass,
)
from regard.engine.triton.hopper.topk import launch as topk
from regard.engine.triton.schedule.intervals import SIDE, schedule
from regard.masks import Causal

LOG2E = 1.4426950408889634
HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


class Candidates:
    """What the kernel for candidates does, by torch: it has no interpreter."""

    def __getitem__(self, grid):
        return self.list

    def list(
        self,
        *,
        WANTED,
        THRESHOLD,
        Q,
        K,
        LOW,
        HIGH,
        LIST_LENGTH,
        CANDIDATE_LISTS,
        first_row,
        q_len,
        k_len,
        group,
        GRAIN,
        **_,
    ):
        maps, rows = LIST_LENGTH.shape
        low, high = (x.reshape(-1, q_len)[:, first_row:] for x in (LOW, HIGH))
        key = torch.arange(k_len)
        for at_map in range(maps):
            q, k = Q.flatten(0, 1)[at_map, first_row:], K.flatten(0, 1)[at_map // group]
            # Rounded from float64, for equal keys to have equal products on any processor.
            scores = (q.double() @ k.double().mT).float()
            there = scores >= THRESHOLD.view(maps, -1)[at_map, first_row:, None]
            there &= (key >= low[at_map % len(low), :, None]) & (key < high[at_map % len(high), :, None])
            bits = (WANTED[at_map][:, :, None] >> torch.arange(32)) & 1
            wanted = bits.flatten(1).mT.repeat_interleave(GRAIN, 1)
            for row in range(min(rows, len(q))):
                found = (there[row] & (wanted[row, :k_len] > 0)).nonzero().flatten()
                LIST_LENGTH[at_map, row] = len(found)
                entry = (scores[row, found].view(torch.int32).long() << 32) | found
                CANDIDATE_LISTS[at_map, row, : len(found)] = entry[: candidates_ptx.MAX_CANDIDATES.value]


class Thresholds:
    """What the kernel does that reads largest scores once, by those that read them twice."""

    def __getitem__(self, grid):
        return self.find

    def find(self, scores, lse, blocks, threshold, wanted, high, scale, *sizes, LINES, **options):
        maps, lines, rows = scores.shape
        assert lines <= LINES
        found = high.view(torch.float32)
        some = torch.zeros_like(found)
        del options["num_warps"], options["maxnreg"]
        threshold_two_pass.threshold_kernel[(rows // 128, maps)](
            scores, lse, blocks, threshold, some, scale, *sizes, **options
        )
        torch.maximum(found, some, out=found)
        cut = {name: options[name] for name in ("GRAIN", "BLOCK_Q", "BLOCK_K")}
        threshold_two_pass.wanted_tiles_kernel[(rows // 128, maps, -(-lines // 16))](
            scores, threshold, blocks, wanted, scale, *sizes[:6], LINES=16, **cut
        )


def thresholds(maxima, lse, blocks, *, scale, first=0, top=0, grain=64, classes=16, high=None):
    """The thresholds of rows with these (maps, lines, rows) largest scores, which are yet to be scaled."""
    (maps, lines, rows), q_len = maxima.shape, lse.shape[-1]
    threshold = torch.full((maps, q_len), torch.nan, device=maxima.device)
    sizes = (q_len, maps, 0, first, rows, lines, *((0, 0) if high is None else high.shape[1:]))
    threshold_two_pass.threshold_kernel[(rows // 128, maps)](
        maxima * (scale * LOG2E), lse, blocks, threshold, threshold if high is None else high, scale, *sizes,
        TOP=top, HAS_BLOCK_MAXIMA=high is not None, CLASSES=classes, GRAIN=grain, BLOCK_Q=128, BLOCK_K=128,
    )  # fmt: skip
    return threshold


def all_tiles(q_len: int, k_len: int, device):
    return schedule(None, q_len, k_len, 0, torch.device(device)).blocks(128, 128)[0]


def test_the_mark_is_the_kth_largest_class_maximum_and_a_little_less(device):
    maxima, lse = torch.randn(2, 32, 128, device=device) * 5, torch.randn(2, 70, device=device) + 9
    threshold = thresholds(maxima, lse, all_tiles(70, 2048, device), scale=0.3, top=5)
    classes = maxima.mT[:, :70].unflatten(2, (2, 16)).amax(2)
    wanted = classes.topk(5, -1).values[..., 4]
    assert (threshold < wanted).all()
    torch.testing.assert_close(threshold, wanted, rtol=1e-5, atol=1e-4)


def test_rows_that_see_few_tiles_list_all_keys_but_the_faintest(device):
    maxima, lse = torch.full((1, 16, 128), -torch.inf, device=device), torch.zeros(1, 70, device=device)
    maxima[:, :2, 3] = 1.0
    maxima[:, :, 64:] = torch.arange(16.0, device=device)[:, None]
    maxima[:, :, 66] = torch.arange(16.0, device=device) * 50 - 700
    lse[:, 5] = -torch.inf
    threshold = thresholds(maxima, lse, all_tiles(70, 1024, device), scale=1.0, top=5)[0]
    # A dead row has no candidates.
    assert threshold[5] == torch.inf
    faintest = -120 / LOG2E
    wanted = torch.tensor([1 + faintest, 11, 50 + faintest])
    below = wanted - threshold[[3, 64, 66]].cpu()
    assert (below > 0).all()
    assert (below < 4e-4).all()


@pytest.mark.parametrize("grain", [64, 128])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
def test_largest_scores_of_tiles_become_the_largest_weights_of_blocks(device, grain, mask):
    q_len, k_len, scale = 300, 600, 0.5
    table = schedule(mask, q_len, k_len, k_len - q_len, torch.device(device))
    blocks, _ = table.blocks(128, 128)
    first, rows, lines = 128, 256, -(-k_len // 128) * (128 // grain)
    maxima, lse = torch.randn(2, lines, rows, device=device), torch.randn(2, q_len, device=device)
    maxima[1, 0, 7] = -torch.inf
    high = torch.full((2, -(-q_len // grain), -(-k_len // grain)), torch.nan, device=device)
    thresholds(maxima, lse, blocks, scale=scale, first=first, grain=grain, classes=2, high=high)
    there = q_len - first
    run = blocks[0, 1:].repeat_interleave(128, 0)[:there] * (128 // grain)
    line = torch.arange(lines, device=device)
    visited = (line >= run[:, :1]) & (line < run[:, 1:2])
    seen = maxima.mT[:, :there].where(visited, -torch.inf)
    weight = (seen * scale - lse[:, first:, None]).exp()[..., : high.shape[2]]
    whole = torch.nn.functional.pad(weight, (0, 0, 0, -there % grain)).unflatten(1, (-1, grain)).amax(2)
    torch.testing.assert_close(high[:, first // grain :], whole)
    assert high[:, : first // grain].isnan().all()


@pytest.mark.parametrize("grain", [64, 128])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
def test_tiles_are_wanted_by_queries_whose_largest_score_there_is_at_or_above_their_mark(device, grain, mask):
    q_len, k_len, first = 300, 400, 128
    table = schedule(mask, q_len, k_len, k_len - q_len, torch.device(device))
    blocks, _ = table.blocks(128, 128)
    rows, lines = 256, -(-k_len // 128) * (128 // grain)
    maxima, threshold = torch.randn(2, lines, rows, device=device), torch.randn(2, q_len, device=device)
    threshold[:, first + 5] = torch.inf
    there = torch.zeros(2, lines, rows, dtype=torch.bool, device=device)
    there[..., : q_len - first] = maxima[..., : q_len - first] >= threshold[:, None, first:]
    # What was not visited was not written.
    for block in range(2):
        start, stop = (blocks[0, block + 1, :2] * (128 // grain)).tolist()
        for unseen in (slice(0, start), slice(stop, None)):
            maxima[:, unseen, block * 128 : (block + 1) * 128] = 1e9
            there[:, unseen, block * 128 : (block + 1) * 128] = False
    wanted = torch.full((2, lines, rows // 32), -1, dtype=torch.int32, device=device)
    threshold_two_pass.wanted_tiles_kernel[(2, 2, -(-lines // 4))](
        maxima * (0.5 * LOG2E), threshold, blocks, wanted, 0.5, q_len, 2, 0, first, rows, lines,
        GRAIN=grain, BLOCK_Q=128, BLOCK_K=128, LINES=4,
    )  # fmt: skip
    bits = (wanted[..., None] >> torch.arange(32, device=device)) & 1
    assert torch.equal(bits.flatten(2).bool(), there)


@pytest.mark.parametrize("many", [0, 40])
def test_of_tiles_that_tie_with_the_mark_the_first_k_stay_wanted(device, many):
    n, lines, rows, top, scale = 70, 48, 128, 3, 0.5
    # Whole numbers below the mark of 9, which many tie with, and a few above it.
    maxima = torch.randint(0, 10, (2, lines, rows), device=device).float()
    maxima[:, 5], maxima[:, 40, ::2] = 10.0, 12.0
    lse = torch.full((2, n), 8.0, device=device)
    mark = 9.0 * LOG2E
    lowered = mark - threshold_two_pass.SLACK.value * (mark + 8 * LOG2E + threshold_two_pass.FARTHEST.value)
    threshold = torch.full((2, n), lowered / (scale * LOG2E), device=device)
    threshold[:, 7] = torch.inf
    above = maxima * LOG2E >= lowered
    above[..., n:] = False
    above[..., 7] = False
    words = (above.unflatten(2, (-1, 32)).long() << torch.arange(32, device=device)).sum(-1)
    wanted = words.where(words < 1 << 31, words - (1 << 32)).to(torch.int32).contiguous()
    low = torch.zeros(1, n, dtype=torch.int32, device=device)
    shared_tiles.drop_ties_kernel[(2, 2)](
        maxima * LOG2E, lse, threshold, wanted, low, low + 64 * lines, 0, 0, scale, n, 64 * lines, 2, 0, rows,
        lines, TOP=top, GRAIN=64, SIDE=SIDE, CHUNK=16, MANY=many, WIDE=64,
    )  # fmt: skip
    bits = ((wanted[..., None] >> torch.arange(32, device=device)) & 1).flatten(2).bool()
    tied = above & (maxima == 9)
    first = above & (~tied | (tied.cumsum(1) <= top))
    assert (above.sum(1) > top + 2).any()
    assert torch.equal(bits, above if many else first)


@pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")
@pytest.mark.parametrize("grain", [64, 128])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
def test_keys_at_or_above_the_mark_go_into_the_lists_of_their_queries(grain, dim, mask):
    q_len, k_len, first, places = 20000, 700, 128, candidates_ptx.MAX_CANDIDATES.value
    table = schedule(mask, q_len, k_len, k_len - q_len, torch.device("cuda"))
    rows, lines = -(-(q_len - first) // 128) * 128, -(-k_len // 128) * (128 // grain)
    torch.manual_seed(0)
    q, k = (
        torch.randn(1, heads, n, dim, device="cuda", dtype=torch.bfloat16)
        for heads, n in ((2, q_len), (1, k_len))
    )
    scores = (q[0].double() @ k[0].double().mT)[:, first:]
    key = torch.arange(k_len, device="cuda")
    seen = (table.low[0, :, first:, None] <= key) & (key < table.high[0, :, first:, None])
    scores = scores.masked_fill(~seen, -torch.inf)
    # Halfway between two scores; one row has more candidates than places, one none.
    by_size = scores.sort(-1, descending=True).values
    threshold = torch.full((2, q_len), torch.inf, device="cuda")
    threshold[:, first:] = (by_size[..., 4] + by_size[..., 5]) / 2
    threshold[:, -9] = (by_size[:, -9, places + 7] + by_size[:, -9, places + 8]) / 2
    threshold[:, -5] = torch.inf
    threshold = threshold.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)
    above = scores >= threshold[:, first:, None]
    padded = torch.nn.functional.pad(above, (0, lines * grain - k_len, 0, rows - above.shape[1]))
    tiles = padded.unflatten(2, (lines, grain)).any(3).mT
    words = (tiles.unflatten(2, (-1, 32)).long() << torch.arange(32, device="cuda")).sum(-1)
    wanted = words.where(words < 1 << 31, words - (1 << 32)).to(torch.int32).contiguous()
    numbers = torch.empty(2, lines, rows, dtype=torch.int32, device="cuda")
    length = torch.zeros(2, rows, dtype=torch.int32, device="cuda")
    lists = torch.full((2, rows, places), -1, dtype=torch.int64, device="cuda")
    # Some tiles have one program, some several; words of bits are not a multiple of these.
    programs = 3 * lines
    share = torch.empty(2, programs, 3, dtype=torch.int32, device="cuda")
    count = tiles.sum(-1).int()
    shares.shares_kernel[(-(-programs // 16), 2)](
        count, share, lines, programs, rows // 32, CHUNK=16, GROUP=16
    )
    candidates.hopper_candidates_kernel[(2 * programs,)](
        share, wanted, numbers, threshold, q, k, table.low, table.high, length, lists,
        *q.stride()[:3], *k.stride()[:3], 0, 0, q_len, k_len, 2, 2, first, rows, lines, programs,
        DIM=dim, GRAIN=grain, MASKED=mask is not None, num_warps=4,
    )  # fmt: skip
    assert torch.equal(length[:, : q_len - first], above.sum(-1).int())
    assert (length[:, q_len - first :] == 0).all()
    fits = (length > 0) & (length <= places)
    entry = lists[:, : q_len - first]
    found, score = entry & 0xFFFFFFFF, (entry >> 32).int().view(torch.float32)
    listed = torch.arange(places, device="cuda") < length[:, : q_len - first, None]
    listed &= fits[:, : q_len - first, None]
    assert listed.any()
    assert above.gather(2, found.where(listed, 0))[listed].all()
    torch.testing.assert_close(
        score[listed].double(), scores.gather(2, found.where(listed, 0))[listed], rtol=1e-5, atol=1e-4
    )
    # No key is listed twice.
    apart = found.where(listed, -1 - torch.arange(places, device="cuda")).sort(-1).values
    assert (apart.diff(dim=-1) != 0).all()


@pytest.mark.parametrize(("places", "k"), [(8, 3), (24, 8), (24, 1)])
def test_the_heaviest_candidates_are_chosen_and_ties_go_to_earlier_keys(device, places, k):
    rows, n = 20, 200
    length = torch.randint(k, places + 1, (2, SIDE), dtype=torch.int32)
    length[:, 7], length[:, 9] = places + 1, 0
    lists = torch.stack([torch.randperm(n)[:places] for _ in range(2 * SIDE)]).view(2, SIDE, places)
    scores = torch.randn(2, SIDE, places)
    # Equal ones, of which the earlier key comes first.
    scores[:, 3:5, 2:] = scores[:, 3:5, :1].abs() + 9
    scores[:, 5] = torch.tensor([0.0, -0.0]).repeat(places // 2)
    scores[:, 6] = -scores[:, 6].abs()
    lse = torch.randn(2, 30)
    lse[:, 10 + 9] = -torch.inf
    got, key = torch.empty(2, 30, k, device=device), torch.empty(2, 30, k, dtype=torch.int64, device=device)
    exhaustive = torch.zeros(2, 1, dtype=torch.int32, device=device)
    peak, peak_key = got.new_empty(2, 30), key.new_empty(2, 30)
    counted = length.to(device, copy=True)
    entries = ((scores.view(torch.int32).long() << 32) | lists).to(device)
    threshold_two_pass.select_kernel[(2, 2)](
        lse.to(device), counted, entries, got, key, peak, peak_key, exhaustive, 0.4, rows, SIDE, 30, 10, 1,
        TOP=k, MAX_CANDIDATES=places, ROWS=16, SIDE=SIDE, MAX_SCORES=True, ARGMAXES=True,
    )  # fmt: skip
    for at_map in range(2):
        for row in range(rows):
            many = min(int(length[at_map, row]), places)
            score = (scores[at_map, row, :many] * 0.4 - lse[at_map, 10 + row]).exp()
            pairs = sorted(zip((-score).tolist(), lists[at_map, row, :many].tolist(), strict=True))[:k]
            pairs = [(-weight, number) for weight, number in pairs] or [(0.0, -1)] * k
            assert got[at_map, 10 + row].tolist() == pytest.approx([weight for weight, _ in pairs], rel=1e-5)
            assert key[at_map, 10 + row].tolist() == [number for _, number in pairs]
            largest = scores[at_map, row, :many].max().item() * 0.4 if many else -torch.inf
            assert peak[at_map, 10 + row].item() == pytest.approx(largest)
    assert exhaustive.tolist() == [[1], [1]]
    assert torch.equal(peak_key[:, 10:], key[:, 10:, 0])
    # The next band begins with empty lists.
    assert not counted[:, :rows].any()
    assert torch.equal(counted[:, rows:].cpu(), length[:, rows:])


@pytest.mark.parametrize("counts", ["few", "one", "none", "many"])
def test_programs_share_tiles_by_how_many_rows_want_them(device, counts):
    lines, programs, words = 37, 50, 12
    count = torch.randint(0, 4, (2, lines), dtype=torch.int32)
    count[0, 0] = {"few": 0, "one": 300, "none": 0, "many": 2**30}[counts]
    if counts == "none":
        count.zero_()
    made = torch.full((2, programs, 3), -1, dtype=torch.int32, device=device)
    shares.shares_kernel[(4, 2)](count.to(device), made, lines, programs, words, CHUNK=8, GROUP=16)
    for at_map in range(2):
        found = [tuple(each) for each in made[at_map].tolist()]
        busy = [each for each in found if each[1] < words or each[2] > 1]
        # Idle programs begin behind the last word.
        assert all(part == words for _, part, _ in found[len(busy) :])
        for line in range(lines):
            own = [(part, parts) for tile, part, parts in busy if tile == line]
            wants, total = int(count[at_map, line]), int(count[at_map].long().sum())
            # Every wanted tile has programs, and each part of it has one.
            assert own == [(part, len(own)) for part in range(len(own))]
            assert len(own) == (wants > 0) + wants * (programs - lines) // max(total, 1)


def by_torch(monkeypatch, **settings) -> None:
    """What follows from tile maxima, by the kernels that have an interpreter, and by torch."""
    # The blocks that are searched again are those of Hopper.
    monkeypatch.setattr(operands, "config", lambda kernel, *_: configs.TABLE[kernel, 9, 64])
    for name, value in settings.items():
        monkeypatch.setattr(topk, name, value)
    if not HOPPER:
        monkeypatch.setattr(topk, "hopper_candidates_kernel", Candidates())
        monkeypatch.setattr(topk, "hopper_threshold_kernel", Thresholds())


def multiply_exactly(monkeypatch) -> None:
    """Give equal keys equal products, as a GPU does: NumPy's differ in the last bit on AMD processors."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def dot(self, a, b, d, *_):
        product = (a.data.astype("float64") @ b.data.astype("float64")).astype(d.data.dtype)
        return TensorHandle(product + d.data, d.dtype.scalar)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", dot)


def follow(problem, scores, result, riders):
    """Give `TopKeys` the largest scores of tiles, as the forward does, band by band."""
    n = problem.q_len
    top_keys = topk.TopKeys(operands.Operands(problem), riders, result, (128, 128))
    fill = (0, -problem.k_len % 128, 0, -n % 128)
    padded = torch.nn.functional.pad(scores.flatten(0, 1), fill, value=-torch.inf)
    bands = list(top_keys.bands())
    for blocks, maxima in bands:
        assert maxima is not None
        some = padded[:, blocks.start * 128 : blocks.stop * 128].unflatten(2, (-1, maxima.grain)).amax(3)
        maxima.scores.copy_(some.mT * (LOG2E * problem.scoring.scale))
        top_keys.process_band(maxima, blocks)
    return top_keys, bands


@pytest.mark.parametrize("held", [True, False], ids=["once", "twice"])
@pytest.mark.parametrize(("mask", "band"), [(None, 1 << 29), (Causal(), 1 << 13)], ids=["whole", "bands"])
def test_from_the_largest_scores_of_tiles_to_top_keys_and_an_overview(device, monkeypatch, mask, band, held):
    # Where scores are read once, there are always 32 classes.
    once = {} if held else {"ONE_PASS": {}}
    by_torch(monkeypatch, BAND_BYTES=band, PROGRAMS=1, **once)
    n, top = 300, 2
    q, k = (torch.randn(1, heads, n, 64).half().to(device) for heads in (2, 1))
    # All keys are the same to one query: more candidates than there are places.
    q[:, :, 100] = 0
    problem = problem_of(q, k, k, Options(mask))
    scores = q.float() @ k.float().mT
    if mask is not None:
        scores = scores.where(torch.ones(n, n, device=device).tril() > 0, -torch.inf)
    lse = (scores / 8).logsumexp(-1)
    weight, high = lse.new_empty(1, 2, n, top), lse.new_empty(1, 2, 5, 5)
    key = lse.new_empty(weight.shape, dtype=torch.int64)
    peak = torch.empty_like(lse)
    result = Streamed(k, lse, max_score=peak, top_weight=weight, top_key=key, block_maxima=high, grain=64)
    top_keys, bands = follow(problem, scores, result, Riders(top_keys=top, grain=64))
    # Only that row's block is searched, not even blocks that see few tiles.
    assert top_keys.exhaustive.bool().any(1).tolist() == [[False, True, False, False, False]]
    assert key[:, :, 100].tolist() == [[[0, 1], [0, 1]]]
    assert len(bands) == (1 if mask is None else 3)
    weights = (scores / 8 - lse[..., None]).exp()
    wanted = weights.topk(top, -1)
    torch.testing.assert_close(weight, wanted.values, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(peak, scores.amax(-1) / 8)
    there = wanted.values > 0
    assert (key == wanted.indices)[there].float().mean() > 0.98
    assert (key[~there] == -1).all()
    whole = torch.nn.functional.pad(weights, (0, 20, 0, 20)).unflatten(3, (5, 64)).unflatten(2, (5, 64))
    torch.testing.assert_close(high, whole.amax((3, 5)), rtol=1e-4, atol=1e-6)


def ties(shape, seed):
    """Small integers: products are exact, and many scores are equal."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, shape, generator=generator).half()


@pytest.mark.parametrize(
    ("name", "long"),
    [(name, False) for name in (*FAMILIES, "ties")]
    + [(name, True) for name in ("rotary locality", "stripes", "equal keys", "ties")],
)
def test_top_keys_of_attention_as_models_make_it(device, monkeypatch, name, long):
    # Long texts have a maximum for every 128 keys. In a text as short as this one no row wants many tiles.
    by_torch(monkeypatch, LONG=0 if long else 8192, MANY=2)
    multiply_exactly(monkeypatch)
    n, top, shape = 577, 8, (1, 1, 577, 64)
    if name == "ties":
        q, k = ties(shape, 1).to(device), ties(shape, 2).to(device)
    else:
        q, k, _ = (x.to(device) for x in inputs(name, shape, torch.float16))
    problem = problem_of(q, k, k, Options(Causal()))
    # Rounded like those of the kernel for candidates.
    scores = (q.double() @ k.double().mT).float().double()
    scores = scores.masked_fill(torch.ones(n, n, device=device).triu(1) > 0, -torch.inf)
    lse = (scores / 8).logsumexp(-1)
    weight = torch.full((1, 1, n, top), torch.nan, device=device)
    key = torch.full(weight.shape, -9, dtype=torch.int64, device=device)
    result = Streamed(k, lse.float(), top_weight=weight, top_key=key)
    follow(problem, scores.float(), result, Riders(top_keys=top))
    # Of equal scores the first key is named, and the faintest are not listed.
    order = scores.sort(dim=-1, descending=True, stable=True)
    level, number = order.values[..., :top] / 8, order.indices[..., :top]
    below = (level[..., :1] - level) * LOG2E
    listed, never = below < 119, ~(below < 121)
    assert (key[never] == -1).all()
    assert (weight[never] == 0).all()
    torch.testing.assert_close(
        weight[listed].double(), (level - lse[..., None]).exp()[listed], rtol=3e-3, atol=0
    )
    # Scores that float32 cannot tell apart may change places.
    gap = scores.gather(-1, key.clamp(min=0)) - scores.gather(-1, number)
    wrong = (key != number) & listed
    assert (gap.abs() <= 2e-6 * scores.gather(-1, number).abs() + 1e-5)[wrong].all()
    if name in ("equal keys", "random", "stripes", "ties"):
        assert not wrong.any()
