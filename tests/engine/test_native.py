"""The native kernels say what torch operations say, to the last digits that float32 has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.folded import (
    BUILDS,
    LOADED,
    SIGNED,
    assert_same,
    both,
    every_statistic,
    tensors_of,
    where_kernels_are,
)
from engine.harness import MASKS, every_mask, qkv, threads
from regard import observe
from regard.engine import library, native
from regard.engine.inputs import Options, problem_of
from regard.engine.native import folding
from regard.engine.native.backend import NativeBackend
from regard.engine.native.units import Span, units
from regard.engine.second_pass import frame_of, summarise
from regard.engine.torch_backend.forward import forward
from regard.masks import Causal, Dense, Documents, Padding, Window
from regard.scores import Additive, ALiBi
from regard.stats import (
    ColumnMass,
    ColumnStatistic,
    Entropy,
    HeadDivergence,
    MaxScore,
    Pooled,
    SinkMass,
    TopK,
    folds_of,
)

pytestmark = where_kernels_are
WAVES = (SIGNED[:65] * 700 + SIGNED[:65, None] * 9000).sin()


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("q", [2, 33])
def test_every_fold_is_what_tiles_add_up_to_under_every_mask(name, q):
    torch.manual_seed(1)
    leaves = qkv(q, 65, batch=2, heads=4, kv_heads=2)
    assert_same(*both(leaves, mask=every_mask(q, 65, 2, 4)[name]))


SHAPES = [
    (1, 1),
    (1, 63),
    (1, 1300),
    (3, 1025),
    (4, 1),
    (4, 63),
    (63, 1),
    (7, 9),
    (65, 63),
    (9, 1025),
    (513, 512),
    (600, 1300),
]


@pytest.mark.share(4)
@pytest.mark.parametrize(("q", "k"), SHAPES, ids=str)
@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(70)], ids=str)
def test_every_fold_is_what_tiles_add_up_to_in_any_shape(q, k, mask):
    torch.manual_seed(2)
    # A lone key gets weight 1, up to rounding: all diagonals are equal, and any may come first.
    tied = ("lines",) if k == 1 < q and mask is None else ()
    assert_same(*both(qkv(q, k, batch=1, heads=2, dim=17), mask=mask), tied=tied)


def test_a_decode_step_of_many_texts_is_read_a_few_at_a_time(monkeypatch):
    torch.manual_seed(17)
    leaves = qkv(2, 65, batch=5, heads=4, kv_heads=2)
    mask = Causal() & Padding.from_lengths([65, 3, 40, 65, 1], 65)
    monkeypatch.setattr(folding, "SCORES", 2 * 4 * 2 * 65)
    assert_same(*both(leaves, mask=mask))


def test_masks_without_intervals_cross_pieces_and_strips():
    torch.manual_seed(3)
    mask = Dense(torch.rand(700, 1100) < 0.3) | Causal() & Window(5)
    assert_same(*both(qkv(700, 1100, batch=1, heads=2), mask=mask))


def test_ragged_batches_have_their_own_intervals():
    torch.manual_seed(4)
    ids = torch.arange(1100).expand(2, -1) // torch.tensor([[100], [700]])
    for mask in (Documents(ids=ids), Causal() & Padding.from_lengths([1100, 300], 1100)):
        assert_same(*both(qkv(1100, 1100, batch=2, heads=1), mask=mask))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_read_in_float32(dtype):
    torch.manual_seed(5)
    assert_same(*both(qkv(130, 130, heads=2, dtype=dtype), mask=Causal()))


ADDITIVE = Additive(torch.eye(16), torch.eye(16), torch.linspace(-1, 1, 16))
MODIFIED = {
    "soft cap": {"softcap": 3.0},
    "alibi": {"bias": ALiBi.for_heads(4)},
    "bias of -inf": {"bias": WAVES.masked_fill(WAVES < -0.8, -torch.inf)},
    "score mod": {"score_mod": lambda s, b, h, i, j: s - 0.1 * (i - j).abs() * (h + 1)},
    "additive": {"score": ADDITIVE},
    "sink": {"sink": torch.linspace(-1, 1, 4)},
    "negative scale": {"scale": -0.3},
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MODIFIED)
@pytest.mark.parametrize("mask", [None, Causal(shift=-5), Documents(lengths=[20, 45])], ids=str)
def test_modified_scores_are_folded_too(name, mask):
    torch.manual_seed(6)
    assert_same(*both(qkv(65, 65, batch=2, heads=4, kv_heads=2), mask=mask, **MODIFIED[name]))


def test_modified_scores_cross_tiles():
    torch.manual_seed(7)
    leaves = qkv(600, 1300, batch=1, heads=2)
    assert_same(*both(leaves, mask=Causal() & Window(900), softcap=4.0))


@pytest.mark.parametrize("size", [30.0, 1e2, 1e4])
def test_large_scores_leave_weights_of_one_and_zero(size):
    torch.manual_seed(8)
    leaves = qkv(65, 130, heads=2, dim=16)
    leaves["q"] *= size
    # s - lse is known to an ulp of s, and weights to as much: at 1e4 to a thousandth.
    edges = ("histogram", "histogram of scores", "window", "lines")
    assert_same(*both(leaves, mask=Causal()), loose=max(1.0, size / 5), but=edges)


def test_dead_rows_weigh_nothing():
    torch.manual_seed(9)
    leaves = qkv(40, 33, heads=2)
    ours, theirs = both(leaves, mask=Causal(shift=-5))
    assert_same(ours, theirs)
    dead = 40 - 33 + 5
    assert torch.equal(ours["entropy"][:, :, :dead], torch.zeros(2, 2, dead))
    assert bool((ours["max score"].key[:, :, :dead] == -1).all())
    assert bool((ours["top"].key[:, :, :dead] == -1).all())


@pytest.mark.share(4)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e30])
@pytest.mark.parametrize(
    "mask", [Padding(torch.arange(130) < 100), Dense((torch.arange(130) < 100).expand(65, -1))], ids=str
)
@pytest.mark.parametrize("q", [1, 65])
def test_garbage_behind_the_mask_stays_there(bad, mask, q):
    torch.manual_seed(10)
    leaves = qkv(q, 130, heads=2)
    mask = Dense(mask.allowed[:q]) if isinstance(mask, Dense) else mask
    stats = list(every_statistic(q, 130, 2, 16).values())
    clean = observe(**leaves, mask=mask, stats=stats).stats
    for name in ("k", "v"):
        leaves[name][:, :, 100:] = bad
    dirty = observe(**leaves, mask=mask, stats=stats).stats
    # Norms of garbage are NaN by column even where no query sees the key, so only rows are compared.
    dirty["norm_weighted"] = dirty["norm_weighted"].rows
    clean["norm_weighted"] = clean["norm_weighted"].rows
    assert_same(dirty, clean)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_garbage_that_is_attended_to_is_left_to_torch(bad):
    leaves = qkv(65, 65, heads=2)
    leaves["q"][0, 0, 7] = bad
    problem = problem_of(**leaves, options=Options())
    frame, asked = frame_of(problem), {"peak": MaxScore()}
    _, folded = NativeBackend().fold(problem, forward(problem).lse, frame, asked, None, False)
    assert folded == set()
    with pytest.warns(UserWarning, match="1 of 260 rows have scores that are NaN"):
        seen = observe(**leaves, stats=[MaxScore()])
    with pytest.warns(UserWarning, match="1 of 260 rows"):
        torchs = observe(**leaves, stats=[MaxScore()], backend="torch")
    assert torch.equal(seen.max_score.key, torchs.max_score.key)
    assert bool(seen.max_score.value[0, 0, 7].isnan())


def test_equal_weights_are_listed_by_key():
    q, k = torch.zeros(1, 1, 9, 4), torch.randn(1, 1, 1100, 4)
    found, _ = both({"q": q, "k": k, "v": k}, {"top": TopK(3), "peak": MaxScore()})
    assert found["top"].key[0, 0].tolist() == [[0, 1, 2]] * 9
    assert found["peak"].key[0, 0].tolist() == [0] * 9


def test_weights_next_to_zero_are_listed_too():
    scores = torch.tensor([0.0, *(-103.0 + 0.1 * i for i in range(-5, 5)), -500.0])
    q, k = torch.ones(1, 1, 5, 1), scores.view(1, 1, -1, 1)
    found, theirs = both({"q": q, "k": k, "v": k}, {"top": TopK(11), "eight": TopK(8)}, scale=1.0)
    assert torch.equal(found["top"].key, theirs["top"].key)
    assert torch.equal(found["eight"].key, theirs["eight"].key)
    torch.testing.assert_close(found["top"].weight, theirs["top"].weight, rtol=0, atol=2**-148)


@pytest.mark.share(4)
@pytest.mark.parametrize("size", [2, 3, 4, 8, 16, 64, 512])
@pytest.mark.parametrize("capability", BUILDS)
def test_blocks_of_any_size_are_summed_by_every_build(size, capability, monkeypatch):
    torch.manual_seed(19)
    monkeypatch.setattr(folding, "load", lambda: native.load(capability=capability))
    stats = {how: Pooled(size, how).named(how) for how in ("mean", "max", "both")}
    for mask in (None, Causal(), Causal() & Window(70)):
        assert_same(*both(qkv(131, 600, batch=1, heads=2), stats, mask=mask))


def test_a_head_does_not_differ_from_its_copy():
    torch.manual_seed(17)
    leaves = qkv(65, 130, heads=3)
    for x in leaves.values():
        x[:, 1] = x[:, 0]
    found, _ = both(leaves, {"divergence": HeadDivergence()}, mask=Causal())
    assert torch.equal(found["divergence"][:, 0, 1], torch.zeros(2))
    assert bool((found["divergence"][:, 0, 2] > 0.01).all())


def test_heads_are_compared_where_only_some_see_anything():
    torch.manual_seed(18)
    allowed = torch.rand(1, 4, 200, 300) < 0.3
    allowed[:, 1, :130] = False
    allowed[:, 2] = False
    found, theirs = both(qkv(200, 300, batch=1), {"divergence": HeadDivergence()}, mask=Dense(allowed))
    assert_same(found, theirs)
    assert bool((found["divergence"][0, 2] == 0).all())


# -- bits ------------------------------------------------------------------------------------------------


def bits(leaves: dict, **options) -> list[Tensor]:
    found, _ = both(leaves, **options)
    return [x for each in found.values() for x in tensors_of(each)]


def identical(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.share(4)
@pytest.mark.parametrize(
    "mask",
    [None, Causal(), Dense((SIGNED[:900] * 7 + SIGNED[:700, None] * 900).sin() < 0)],
    ids=["none", "causal", "dense"],
)
@pytest.mark.parametrize(("q", "k"), [(700, 900), (1, 5000)])
def test_neither_threads_nor_repeats_change_a_bit(q, k, mask):
    torch.manual_seed(11)
    if isinstance(mask, Dense) and q == 1:
        mask = Dense((SIGNED[:1].new_tensor(range(k)) * 7).sin()[None] < 0)
    problem = problem_of(**qkv(q, k, batch=1, heads=3), options=Options(mask))
    lse = forward(problem).lse
    named = every_statistic(q, k, 3, 16)

    def run() -> list[Tensor]:
        return [x for each in summarise(problem, lse, named).values() for x in tensors_of(each)]

    one = run()
    for count in (1, 2, 3, 8):
        with threads(count):
            assert identical(run(), one)


def test_a_failing_thread_is_heard(monkeypatch):
    def failing(self, *given):
        raise MemoryError("none left")

    monkeypatch.setattr(library.Library, "_fold", failing)
    # The second call of its kind.
    monkeypatch.setattr(library.Library, "launch", failing)
    for count in (1, 2):
        with threads(count), pytest.raises(MemoryError, match="none left"):
            observe(**qkv(65, 65), stats=[Entropy()])


def test_python_threads_give_the_same_bits(monkeypatch):
    torch.manual_seed(16)
    leaves = qkv(300, 600, batch=1, heads=3)
    with threads(2):
        one = bits(leaves)
        monkeypatch.setattr(folding, "load", lambda: replace(LOADED, has_threads=False))
        assert identical(bits(leaves), one)


def test_a_subclass_with_an_update_of_its_own_is_shown_tiles():
    class Doubled(Entropy):
        def update(self, state, tile):
            super().update(state, tile)
            super().update(state, tile)

    leaves = qkv(65, 65)
    frame = frame_of(problem_of(**leaves, options=Options()))
    assert folds_of(Doubled(), Doubled().init(frame), frame) is None
    seen = observe(**leaves, stats=[Entropy(), Doubled()])
    torch.testing.assert_close(seen.doubled, 2 * seen.entropy, rtol=1e-5, atol=1e-5)


def test_columns_that_are_not_finite_are_left_to_torch():
    class Poisoned(SinkMass):
        folds = ColumnStatistic.folds

        def columns(self, frame):
            return super().columns(frame).fill_(torch.nan)

    frame = frame_of(problem_of(**qkv(5, 5), options=Options()))
    assert folds_of(Poisoned(), Poisoned().init(frame), frame) is None


def test_pieces_cover_every_allowed_pair_once():
    torch.manual_seed(14)
    for name, mask in every_mask(33, 65, 2, 4).items():
        problem = problem_of(**qkv(33, 65, batch=2, heads=4), options=Options(mask))
        seen = torch.zeros(2, 4, 33, 65, dtype=torch.int64)
        for unit in units(problem):
            for span in unit.spans:
                cells = seen[unit.batch, unit.head, unit.rows.start : unit.rows.stop]
                cells[:, span.keys.start : span.keys.stop] += confined(unit, span)
        truth = torch.ones(33, 65) if mask is None else mask.bind(2, 4).dense(33, 65)
        assert torch.equal(seen, truth.long().expand(2, 4, 33, 65)), name


def confined(unit, span: Span) -> Tensor:
    """Which pairs of a span the kernel would leave alone."""
    allowed = torch.ones(len(unit.rows), len(span.keys), dtype=torch.bool)
    if span.allowed is not None:
        allowed &= span.allowed
    if unit.low is not None:
        keys = torch.arange(span.keys.start, span.keys.stop)
        some = slice(unit.rows.start, unit.rows.stop)
        allowed &= (keys >= unit.low[some, None]) & (keys < unit.high[some, None])
    return allowed


def test_a_problem_of_some_rows_only_is_read_at_its_own_positions():
    torch.manual_seed(15)
    whole = problem_of(**qkv(65, 65, batch=1, heads=2), options=Options(Causal()))
    lse = forward(whole).lse
    block = replace(whole.block(range(20, 50)))
    found = summarise(block, lse[:, :, 20:50], {"mass": ColumnMass(), "peak": MaxScore()})
    full = summarise(whole, lse, {"peak": MaxScore()})
    torch.testing.assert_close(found["mass"].sum(-1), torch.full((1, 2), 30.0))
    assert torch.equal(found["peak"].key, full["peak"].key[:, :, 20:50])
