"""The kernels for Hopper against float64, against the other backends, and against themselves.

They have no interpreter: without such a GPU they are only compiled (test_compiling.py), and what is around
them is tested in test_schedule.py and test_reduction.py.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks.families import inputs
from regard import attention, observe
from regard.engine.inputs import Options, problem_of
from regard.engine.triton import hopper
from regard.engine.triton.forward import launch as forward_launch
from regard.engine.triton.hopper import head_order, support
from regard.maps import overflow
from regard.masks import Causal, Chunk, Documents, Window
from regard.stats import ColumnMass, Decay, Entropy, MaxScore, MeanDistance, Pooled, SinkMass, TopK

pytestmark = [
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a Hopper GPU",
    ),
    pytest.mark.usefixtures("_dirty_sums"),
]
MASKS = {
    "none": None,
    "causal": Causal(),
    "window": Causal() & Window(130),
    "chunks": Causal() & Chunk(100),
    "documents": Documents([41, 300, 159]),
    "ragged documents": Documents(ids=torch.stack([torch.arange(500) // 130, torch.arange(500) // 250])),
    "documents with padding": Causal()
    & Documents(ids=(torch.arange(500) // 200).where(torch.arange(500) < 450, -1)),
}
ROWS = [Entropy(), MaxScore(), MeanDistance(), SinkMass()]
# Rows with few keys, and others.
FEW = (1 << 30, 0)
MAP = [ColumnMass(), Decay(signed=True), Pooled(64, "both"), TopK(8)]


def tensors(batch=2, heads=4, kv_heads=4, q=500, k=500, dim=128, dtype=torch.bfloat16):
    torch.manual_seed(0)
    shapes = ((heads, q), (kv_heads, k), (kv_heads, k))
    return tuple(torch.randn(batch, h, n, dim, dtype=dtype, device="cuda") for h, n in shapes)


def exact(q, k, v, mask=None, **options):
    """In float64, by torch operations."""
    wide = (x.double() for x in (q, k, v))
    return observe(*wide, mask, stats=[*ROWS, *MAP], backend="torch", **options)


def close(got, wanted, tolerance: float) -> None:
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, wanted)), strict=True):
        a, b = a.double(), b.double()
        assert a.shape == b.shape
        assert (a - b).norm() <= tolerance * b.norm() + 1e-9


def check(q, k, v, mask=None, **options) -> None:
    assert hopper.applicable(problem_of(q, k, v, Options(mask, **options)))
    wanted = exact(q, k, v, mask, **options)
    # Where top keys are asked, the largest score is the first of them.
    compare(observe(q, k, v, mask, stats=[*ROWS, *MAP], **options), wanted)
    for few in FEW:
        compare(rows_of(q, k, v, mask, few, **options), wanted)


def rows_of(q, k, v, mask, few, stats=ROWS, **options):
    """Row statistics of rows of which those that see no more than a `few` keys, on average, look for that of
    the largest score in every tile, and others once more in one of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "FEW_KEYS", dict.fromkeys(support.FEW_KEYS, few))
        return observe(q, k, v, mask, stats=stats, **options)


def compare(got, wanted) -> None:
    close(got.out, wanted.out, 5e-3)
    close(got.lse.nan_to_num(neginf=0), wanted.lse.nan_to_num(neginf=0), 1e-5)
    for name in got.stats:
        if name == "top_k":
            # Keys of nearly equal weight may change places, and the faintest are not listed.
            close(got.top_k[0], wanted.top_k[0], 1e-5)
            listed = wanted.top_k[0] > wanted.top_k[0][..., :1] * 2.0**-120
            assert (got.top_k[1] == wanted.top_k[1])[listed].float().mean() > 0.999
        elif name == "max_score":
            close(got.max_score[0].nan_to_num(neginf=0), wanted.max_score[0].nan_to_num(neginf=0), 1e-5)
            assert (got.max_score[1] == wanted.max_score[1]).float().mean() > 0.999
        else:
            close(got.stats[name], wanted.stats[name], 1e-4)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dim", [64, 128])
def test_everything_equals_its_definition_under_every_interval_mask(name, dim):
    check(*tensors(dim=dim), MASKS[name])


@pytest.mark.parametrize(("q", "k"), [(1, 65), (63, 64), (127, 129), (65, 1000), (1023, 9)])
def test_odd_lengths_are_no_problem(q, k):
    check(*tensors(q=max(q, 9), k=k))


@pytest.mark.parametrize(
    "mask",
    [None, Causal(), Causal() & Window(900), Documents([700, 64, 1400, 136])],
    ids=["none", "causal", "window", "documents"],
)
@pytest.mark.parametrize("dim", [64, 128])
def test_top_keys_of_longer_texts_come_from_few_tiles(mask, dim):
    check(*tensors(batch=1, heads=4, kv_heads=2, q=2300, k=2300, dim=dim), mask)


@pytest.mark.parametrize("mask", [None, Causal() & Window(900)], ids=["none", "window"])
@pytest.mark.parametrize("held", [[64], [128], [256], [512], []])
def test_largest_scores_of_tiles_are_read_once_where_registers_hold_them(monkeypatch, mask, held):

    from regard.engine.triton.hopper.topk import launch as topk

    monkeypatch.setattr(topk, "ONE_PASS", {lines: topk.ONE_PASS[lines] for lines in held})
    check(*tensors(batch=1, heads=4, kv_heads=2, q=2300, k=2300), mask)


def test_top_keys_of_a_text_of_many_tiles():
    check(*tensors(batch=1, heads=1, kv_heads=1, q=9000, k=9000), Causal())


@pytest.mark.parametrize("mask", [None, Causal()], ids=["none", "causal"])
def test_every_query_may_want_the_same_tile(mask):
    q, k, v = tensors(batch=1, heads=2, kv_heads=2, q=2300, k=2300)
    alike = torch.randn(q.shape[-1], device="cuda", dtype=q.dtype)
    k[:, :, 5] = alike
    check(q + alike, k, v, mask)


@pytest.mark.parametrize("mask", [None, Causal()], ids=["none", "causal"])
def test_largest_scores_and_largest_weights_need_no_top_keys_asked(mask):
    q, k, v = tensors(batch=1, q=2300, k=2300)
    asked = [MaxScore(), Pooled(128, "max")]
    got = observe(q, k, v, mask, stats=asked)
    wanted = observe(*(x.double() for x in (q, k, v)), mask, stats=asked, backend="torch")
    close(got.max_score[0], wanted.max_score[0], 1e-5)
    assert (got.max_score[1] == wanted.max_score[1]).float().mean() > 0.999
    close(got.pooled, wanted.pooled, 1e-4)


def test_rows_that_look_at_hardly_more_than_one_key():
    q, k, v = tensors(batch=1, heads=2, kv_heads=2, q=1500, k=1500)
    check(q * 24, k, v, Causal())


@pytest.mark.parametrize(("dim", "dtype"), [(128, torch.bfloat16), (64, torch.float16)])
@pytest.mark.parametrize("rising", [True, False])
def test_scores_that_rise_or_fall_from_tile_to_tile(dim, dtype, rising):
    # Tiles come last first. What weights are relative to is raised where scores go far beyond it.
    q, k, v = tensors(batch=1, q=700, k=1500, dim=dim, dtype=dtype)
    first, last = (9, 0.1) if rising else (0.1, 9)
    k *= torch.linspace(first, last, 1500, device="cuda").to(dtype)[:, None]
    check(q, k, v)
    wanted = exact(q, k, v)
    alone, rows = observe(q, k, v, stats=[Entropy()]), observe(q, k, v, stats=ROWS)
    close(alone.out, wanted.out, 5e-3)
    for got in (alone, rows):
        close(got.lse, wanted.lse, 1e-5)
        close(got.entropy, wanted.entropy, 1e-4)
    close(rows.max_score[0], wanted.max_score[0], 1e-5)
    close(rows.mean_distance, wanted.mean_distance, 1e-4)


@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
@pytest.mark.parametrize(("dim", "dtype"), [(128, torch.bfloat16), (64, torch.float16)])
@pytest.mark.parametrize("leap", [9, 24, 100])
def test_scores_that_leap_from_one_tile_to_the_next(dim, dtype, leap, mask):
    # Weights are relative to what earlier tiles had, and may be more than a number holds.
    q, k, v = tensors(batch=1, heads=2, kv_heads=2, q=1500, k=1500, dim=dim, dtype=dtype)
    k[:, :, 400:] *= 0.1
    k[:, :, :400] *= leap
    wanted = exact(q, k, v, mask)
    # Scores of hundreds are known to a few millionths of themselves, and weights follow.
    tolerance = 1e-4 if leap < 50 else 1e-3
    for stats, few in (([], 0), *((ROWS, few) for few in FEW), ([*ROWS, *MAP], 0)):
        got = rows_of(q, k, v, mask, few, stats)
        close(got.out, wanted.out, 5e-3)
        close(got.lse, wanted.lse, 1e-5)
        for name in got.stats:
            if name in ("top_k", "max_score"):
                # Of keys whose weights are 0, any are the heaviest.
                there = wanted.stats[name][0].abs() > 1e-30
                close(got.stats[name][0], wanted.stats[name][0], tolerance)
                assert (got.stats[name][1] == wanted.stats[name][1])[there].float().mean() > 0.999
            else:
                close(got.stats[name], wanted.stats[name], tolerance)


LEAPS = ("outliers", "large logits", "leap, first key", "leap, middle key", "leap, last key")


@pytest.mark.parametrize("mask", ["none", "causal", "window", "documents"])
@pytest.mark.parametrize(("dim", "dtype"), [(128, torch.bfloat16), (64, torch.float16)])
@pytest.mark.parametrize("family", LEAPS)
def test_leaping_scores_are_computed_once(monkeypatch, family, dim, dtype, mask):
    """No block of queries is left to the portable kernel, and statistics and top keys are exact."""
    left = []
    launch = forward_launch._launch

    def recomputed(operands, cut, riders, result, argmax, dirty, *args, careful, **options):
        left.append(int(dirty.sum()) if careful else 0)
        launch(operands, cut, riders, result, argmax, dirty, *args, careful=careful, **options)

    monkeypatch.setattr(forward_launch, "_launch", recomputed)
    n = 500 if mask == "documents" else 1100
    q, k, v = inputs(family, (1, 4, n, dim), dtype, device="cuda")
    # Not packed: rows of keys lie a step of their own apart, and heads share keys.
    k, v = (torch.cat([x[:, ::2], x[:, ::2]], -1)[..., :dim] for x in (k, v))
    wanted = exact(q, k, v, MASKS[mask])
    tolerance = 2e-3  # scores of thousands are known to a few millionths of themselves
    for stats, few in (([], 0), ([Entropy()], 0), *((ROWS, few) for few in FEW), ([*ROWS, *MAP], 0)):
        got = rows_of(q, k, v, MASKS[mask], few, stats)
        close(got.out, wanted.out, 5e-3)
        close(got.lse, wanted.lse, 1e-5)
        for name in got.stats:
            if name in ("top_k", "max_score"):
                close(got.stats[name][0], wanted.stats[name][0], tolerance)
            else:
                close(got.stats[name], wanted.stats[name], tolerance)
    assert left
    assert sum(left) == 0


@pytest.mark.parametrize("large", [500.0, 3e3, 3e4, 1e6, 1e12])
def test_immense_scores_are_exact_too(large):
    q, k, v = tensors(batch=1, heads=2, kv_heads=2, q=700, k=700)
    q[:, :, 300] = k[:, :, 20] = large
    wanted = attention(q.double(), k.double(), v.double(), Causal(), backend="torch")
    for stats in ([], [Entropy()], ROWS, [*ROWS, TopK(8)]):
        got = observe(q, k, v, Causal(), stats=stats)
        close(got.out, wanted, 1e-2)


@pytest.mark.filterwarnings("ignore:.*overflow")
def test_an_infinite_score_spoils_no_row_but_its_own():
    q, k, v = tensors(batch=1, heads=2, kv_heads=2, q=700, k=700)
    q[:, :, 300] = k[:, :, 20] = 2e19
    wanted = attention(q.double(), k.double(), v.double(), Causal(), backend="torch")
    out = observe(q, k, v, Causal(), stats=[Entropy()]).out
    assert out[:, :, 300].isnan().all()
    close(out[:, :, :300], wanted[:, :, :300], 1e-2)
    close(out[:, :, 301:], wanted[:, :, 301:], 1e-2)


def test_a_sink_that_leaves_nothing_to_any_key():
    q, k, v = tensors(batch=1, heads=2, kv_heads=2, q=1200, k=1200)
    sink = torch.tensor([0.0, 200.0], device="cuda")
    got, wanted = (
        observe(*x, Causal(), stats=[MaxScore(), TopK(8)], sink=sink.to(x[0].dtype), backend=backend)
        for x, backend in (((q, k, v), "auto"), ([x.double() for x in (q, k, v)], "torch"))
    )
    close(got.max_score[0], wanted.max_score[0], 1e-5)
    assert (got.max_score[1] == wanted.max_score[1]).float().mean() > 0.999
    assert (got.top_k[1][:, 1] == -1).all()


def test_queries_at_the_end_of_a_longer_text():
    check(*tensors(q=100, k=777), Causal())


def test_grouped_heads_half_precision_and_a_sink():
    q, k, v = tensors(heads=8, kv_heads=2, dtype=torch.float16)
    check(q, k, v, Causal(), sink=torch.linspace(-2, 2, 8, device="cuda"))


@pytest.mark.parametrize("kv_heads", [6, 3, 1])
@pytest.mark.parametrize("dim", [64, 128])
def test_heads_that_take_turns_give_the_same_bits_as_one_after_the_other(monkeypatch, kv_heads, dim):
    inputs = [x.requires_grad_() for x in tensors(heads=6, kv_heads=kv_heads, dim=dim)]
    check(*(x.detach() for x in inputs), Causal())
    found = []
    for near in (head_order.NEAR, 0):
        monkeypatch.setattr(head_order, "NEAR", near)
        assert (head_order.heads_across(problem_of(*inputs, Options(Causal())), *inputs) > 0) == (near > 0)
        out = attention(*inputs, Causal(), backend="triton")
        seen = observe(*(x.detach() for x in inputs), Causal(), stats=[*ROWS, TopK(8)])
        rest = [seen.out, seen.lse, seen.entropy, seen.mean_distance, *seen.max_score, *seen.top_k]
        found.append([out, *torch.autograd.grad(out.float().square().sum(), inputs), *rest])
    for taking_turns, in_a_row in zip(*found, strict=True):
        assert torch.equal(taking_turns, in_a_row)


def test_heads_with_interleaved_strides():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors())
    check(q, k, v, Causal())


@pytest.mark.parametrize("mask", [None, Causal()], ids=["none", "causal"])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64, 128, 192])
def test_overviews_of_any_block_size(size, mask):
    q, k, v = tensors(k=777)
    statistics = [Pooled(size, "both"), Decay(), ColumnMass()]
    got = observe(q, k, v, mask, stats=statistics)
    wanted = observe(q.double(), k.double(), v.double(), mask, stats=statistics, backend="torch")
    close(got.pooled, wanted.pooled, 1e-4)
    close(got.decay, wanted.decay, 1e-4)
    close(got.column_mass, wanted.column_mass, 1e-4)


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("size", [2, 8, 16, 32])
def test_means_and_largest_weights_of_blocks_may_be_asked_alone(size, how):
    q, k, v = tensors(dim=64)
    statistics = [Pooled(size, how)]
    got = observe(q, k, v, Causal(), stats=statistics)
    wanted = observe(q.double(), k.double(), v.double(), Causal(), stats=statistics, backend="torch")
    close(got.pooled, wanted.pooled, 1e-4)


@pytest.mark.parametrize("size", [4, 8, 16, 32])
def test_an_overview_has_the_same_bits_every_time(size):
    q, k, v = tensors(q=1000, k=1000)
    first, second = (observe(q, k, v, Causal(), stats=[Pooled(size, "both")]).pooled for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_same_call_gives_the_same_bits():
    q, k, v = tensors(q=2000, k=2000)
    first, second = (observe(q, k, v, Causal(), stats=[*ROWS, *MAP]) for _ in range(2))
    assert torch.equal(first.out, second.out)
    for name in first.stats:
        a, b = (x.stats[name] for x in (first, second))
        assert all(
            torch.equal(x, y)
            for x, y in zip(*((x if isinstance(x, tuple) else (x,)) for x in (a, b)), strict=True)
        )


def test_rows_with_more_candidates_than_places_are_searched_again():
    q, k, v = tensors()
    # All scores are equal: every key is a candidate, and the first ones are the answer.
    got = observe(torch.zeros_like(q), k, v, Causal(), stats=[TopK(4)])
    keys = got.top_k[1][:, :, 10:]
    assert torch.equal(keys, torch.arange(4, device="cuda").expand_as(keys))


@pytest.mark.parametrize("first", [1, 8, 9, 20])
@pytest.mark.parametrize("name", ["none", "causal", "window", "documents with padding"])
def test_every_kernel_returns_the_same_weight_of_first_keys(name, first):
    q, k, v = tensors()
    # Keys that are looked at, by all who see them.
    k[:, :, :first] += q.mean((1, 2), keepdim=True) * 40
    sink = SinkMass(first)
    wanted = observe(*(x.double() for x in (q, k, v)), MASKS[name], stats=[sink], backend="torch").sink_mass
    # From the forward itself; with the keys of largest scores; after top keys.
    for others in ([], [MaxScore()], [TopK(8)], [MaxScore(), TopK(8)]):
        close(observe(q, k, v, MASKS[name], stats=[sink, *others]).sink_mass, wanted, 1e-4)


@pytest.mark.parametrize("name", ["none", "causal", "window"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("stats", [ROWS, [MaxScore()]], ids=["rows", "alone"])
def test_every_kernel_returns_the_first_of_equal_scores(name, dim, stats):
    q, k, v = tensors(batch=1, k=500, dim=dim)
    # Every key is there four times: in the same tile, and in others.
    k[:, :, 125:] = k[:, :, :125].repeat(1, 1, 3, 1)
    told, looked_up = (rows_of(q, k, v, MASKS[name], few, stats).max_score for few in FEW)
    assert torch.equal(told.key, looked_up.key)
    assert torch.equal(told.value, looked_up.value)
    scores = (q.double() @ k.double().mT) * dim**-0.5
    if MASKS[name] is not None:
        allowed = MASKS[name].tile((0, 500), (0, 500), device="cuda")
        scores = scores.masked_fill(~allowed, -torch.inf)
    # In float64 they are equal too, and of equal ones argmax may name any.
    first = (scores == scores.amax(-1, keepdim=True)).byte().argmax(-1)
    assert (told.key == first).float().mean() > 0.999


def test_garbage_behind_the_mask_does_not_leak():
    q, k, v = tensors()
    clean = attention(q, k, v, Causal() & Window(130), backend="triton")
    v = v.clone()
    v[:, :, -1] = torch.nan
    got = attention(q, k, v, Causal() & Window(130), backend="triton")
    # Blocks with garbage are done again by another kernel, which rounds otherwise.
    close(got[:, :, :-1], clean[:, :, :-1], 5e-3)
    assert got[:, :, -1].isnan().all()


@pytest.mark.parametrize("mask", [None, Causal()], ids=["none", "causal"])
def test_a_query_that_is_no_number_is_reported_and_leaves_others_alone(mask):
    q, k, v = tensors()
    q[0, 1, 70] = torch.nan
    seen = observe(q, k, v, mask, stats=ROWS)
    with pytest.warns(UserWarning, match="1 of 4000 rows"):
        overflow.settle()
    lost = seen.lse.isnan()
    assert lost.nonzero().tolist() == [[0, 1, 70]]
    assert torch.equal(seen.out.isnan().all(-1), lost)
    assert torch.equal(seen.out.isnan().any(-1), lost)
    assert torch.equal(seen.entropy.isnan(), lost)


def test_rows_that_see_nothing_have_no_top_keys_in_a_long_text_either():
    """Of short ones every block is searched row by row."""
    n, alive = 3000, 2900
    at = torch.arange(n)
    q, k, v = tensors(batch=1, heads=2, kv_heads=2, q=n, k=n)
    mask = Documents(ids=(at // 2000).where(at < alive, -1))
    top = observe(q, k, v, mask, stats=[TopK(8)]).top_k
    assert (top.weight[:, :, :alive] > 0).all()
    assert (top.weight[:, :, alive:] == 0).all()
    assert (top.key[:, :, alive:] == -1).all()


def test_long_texts_are_swept_in_bands(monkeypatch):

    q, k, v = tensors(heads=1, kv_heads=1, batch=1, q=1500, k=1500)
    asked = [*ROWS, *MAP, Pooled(512, "both").named("coarse")]
    whole = observe(q, k, v, Causal(), stats=asked)
    from regard.engine.triton.hopper.second_pass import sweep
    from regard.engine.triton.hopper.topk import launch as topk

    for module in (topk, sweep):
        monkeypatch.setattr(module, "BAND_BYTES", 1 << 20)
        monkeypatch.setattr(module, "PROGRAMS", 4)
    monkeypatch.setattr(sweep, "SHORTEST", 1)
    bands = observe(q, k, v, Causal(), stats=asked)
    for name in whole.stats:
        close(bands.stats[name], whole.stats[name], 1e-5)


@pytest.mark.parametrize("size", [16, 64])
def test_strips_of_few_maps_are_cut(monkeypatch, size):

    q, k, v = tensors(heads=1, kv_heads=1, batch=1, q=1500, k=1400)
    asked = [ColumnMass(), Decay(signed=True), Pooled(size, "both")]
    whole = observe(q, k, v, Causal(), stats=asked)
    from regard.engine.triton.hopper.second_pass import sweep

    monkeypatch.setattr(sweep, "PROGRAMS", 64)
    monkeypatch.setattr(sweep, "SHORTEST", 5)
    cut = observe(q, k, v, Causal(), stats=asked)
    for name in whole.stats:
        close(cut.stats[name], whole.stats[name], 1e-5)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("mask", [None, Documents(lengths=(1100, 400))])
def test_diagonals_of_future_keys_are_left_out_unless_requested(monkeypatch, mask, signed):

    from regard.engine.triton.hopper.second_pass import sweep

    walked, walk = [], sweep._Sweep._launch

    def seen(sweep, band, strips, *args, **asked):
        walked.append(strips.shape[1])
        walk(sweep, band, strips, *args, **asked)

    monkeypatch.setattr(sweep._Sweep, "_launch", seen)
    monkeypatch.setattr(sweep, "PROGRAMS", 2)
    q, k, v = tensors(q=1500, k=1500)
    asked = [ColumnMass(), Decay(), Pooled(64, "both")]
    asked += [Decay(signed=True).named("both")] if signed else []
    got = observe(q, k, v, mask, stats=asked)
    assert (walked[1] > 0) == (not signed)
    wanted = observe(*(x.double() for x in (q, k, v)), mask, stats=asked, backend="torch")
    for name in wanted.stats:
        close(got.stats[name], wanted.stats[name], 1e-4)


def test_columns_alone():
    q, k, v = tensors(q=700, k=900)
    got = observe(q, k, v, Causal(), stats=[ColumnMass()])
    wanted = observe(*(x.double() for x in (q, k, v)), Causal(), stats=[ColumnMass()], backend="torch")
    close(got.column_mass, wanted.column_mass, 1e-4)


def test_several_who_ask_for_the_same_are_all_told():
    q, k, v = tensors(q=700, k=900)
    asked = [
        ColumnMass(),
        ColumnMass(normalise=True).named("shares"),
        TopK(4),
        TopK(8).named("more"),
        Decay(),
    ]
    asked += [Decay(bins="log").named("octaves"), Pooled(64), Pooled(64, "max").named("largest")]
    got = observe(q, k, v, Causal(), stats=asked)
    wanted = observe(*(x.double() for x in (q, k, v)), Causal(), stats=asked, backend="torch")
    for name in wanted.stats:
        keys = name in ("top_k", "more")
        pair = (x.stats[name][0] if keys else x.stats[name] for x in (got, wanted))
        close(*pair, 1e-4)


def test_more_maps_than_a_grid_has_rows_go_to_the_other_kernels():
    few, many = (torch.zeros(batch, 64, 16, 64, dtype=torch.bfloat16, device="cuda") for batch in (2, 1100))
    assert hopper.applicable(problem_of(few, few, few, Options()))
    assert not hopper.applicable(problem_of(many, many, many, Options()))
