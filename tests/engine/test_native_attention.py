"""Attention by the native kernels: as good as eager, with every rider, and the same bits for any threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from effort import examples
from engine.folded import BUILDS, where_kernels_are
from engine.harness import MASKS, every_mask, judge, qkv, threads
from oracle import dense_attention, dense_mask
from regard import attention, observe
from regard.engine import native
from regard.engine.inputs import Options, problem_of
from regard.engine.native import attending
from regard.engine.riders import Riders, Streamed
from regard.engine.torch_backend.forward import forward
from regard.masks import Causal, Dense, Documents, Padding, Window
from regard.stats import (
    ColumnStatistic,
    Entropy,
    MaxScore,
    MeanDistance,
    SegmentMass,
    SinkMass,
    ValueWeighted,
)

pytestmark = where_kernels_are
FIELDS = ("out", "lse", "columns", "entropy", "distance", "max_score", "argmax")


def streamed(leaves: dict, mask=None, **options) -> tuple[Streamed, Streamed]:
    """What both engines bring back when everything rides."""
    problem = problem_of(**leaves, options=Options(mask, **options))
    columns = torch.randn(problem.batch, problem.k.shape[1], problem.k_len, 3)
    columns[..., 4:, 1] = 0
    riders = Riders(columns, entropy=True, distance=True, max_score=True)
    return native.attend(problem, riders), forward(problem, riders)


def assert_same(ours: Streamed, theirs: Streamed) -> None:
    for name in FIELDS:
        x, y = getattr(ours, name), getattr(theirs, name)
        assert (x.dtype, x.shape) == (y.dtype, y.shape), name
        if name == "argmax":
            assert torch.equal(x, y)
            continue
        size = max(1.0, float(y[y.isfinite()].abs().max())) if bool(y.isfinite().any()) else 1.0
        torch.testing.assert_close(x, y, rtol=2e-5, atol=2e-6 * size, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MASKS)
def test_it_is_what_streaming_says_under_every_mask(name):
    torch.manual_seed(1)
    leaves = qkv(33, 65, batch=2, heads=4, kv_heads=2)
    assert_same(*streamed(leaves, mask=every_mask(33, 65, 2, 4)[name]))


SHAPES = [(1, 1), (1, 63), (63, 1), (7, 9), (65, 63), (9, 1025), (513, 512), (600, 1300)]


@pytest.mark.share(3)
@pytest.mark.parametrize(("q", "k"), SHAPES, ids=str)
@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(70)], ids=str)
def test_it_is_what_streaming_says_in_any_shape(q, k, mask):
    torch.manual_seed(2)
    assert_same(*streamed(qkv(q, k, batch=1, heads=2, dim=17, v_dim=35), mask=mask))


@given(
    q=st.integers(1, 80),
    k=st.integers(1, 700),
    dim=st.integers(1, 70),
    v_dim=st.integers(1, 70),
    group=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@examples(25)
def test_it_is_what_streaming_says_for_any_sizes(q, k, dim, v_dim, group, seed):
    torch.manual_seed(seed)
    leaves = qkv(q, k, batch=1, heads=2 * group, kv_heads=2, dim=dim, v_dim=v_dim)
    mask = None if seed % 3 == 0 else Causal() if seed % 3 == 1 else Dense(torch.rand(q, k) < 0.5)
    assert_same(*streamed(leaves, mask=mask))


def test_ragged_batches_and_transposed_layouts_are_read_as_they_lie():
    torch.manual_seed(3)
    leaves = {name: x.transpose(1, 2).contiguous().transpose(1, 2) for name, x in qkv(300, 300).items()}
    ids = torch.arange(300).expand(2, -1) // torch.tensor([[100], [70]])
    for mask in (Documents(ids=ids), Causal() & Padding.from_lengths([300, 120], 300)):
        assert_same(*streamed(leaves, mask=mask))
    columns = {name: x.mT.contiguous().mT for name, x in qkv(65, 65).items()}
    assert_same(*streamed(columns, mask=Causal()))


@pytest.mark.parametrize(
    "options", [{"sink": torch.linspace(-1, 1, 4)}, {"scale": -0.3}, {"scale": 0.0}], ids=str
)
def test_a_sink_and_any_scale_are_known(options):
    torch.manual_seed(4)
    assert_same(*streamed(qkv(65, 63, kv_heads=2), mask=Causal(), **options))


def test_rising_scores_lift_what_was_summed_before():
    # Every strip of keys raises the largest score by more than float32 can hold the factor of.
    k = torch.arange(1300.0).view(1, 1, -1, 1) / 4
    leaves = {"q": torch.ones(1, 1, 40, 1), "k": k, "v": torch.randn(1, 1, 1300, 8)}
    ours, theirs = streamed(leaves, scale=1.0)
    assert_same(ours, theirs)
    assert bool((ours.argmax == 1299).all())


def test_of_equal_scores_the_first_key_is_the_peak():
    leaves = {"q": torch.zeros(1, 1, 40, 4), "k": torch.randn(1, 1, 1100, 4), "v": torch.randn(1, 1, 1100, 4)}
    assert streamed(leaves)[0].argmax.unique().tolist() == [0]


def test_dead_rows_have_zeros_and_an_lse_of_minus_infinity():
    torch.manual_seed(5)
    ours, theirs = streamed(qkv(700, 33, heads=2), mask=Causal(shift=-5))
    assert_same(ours, theirs)
    dead = 700 - 33 + 5
    assert torch.equal(ours.out[:, :, :dead], torch.zeros(2, 2, dead, 16))
    assert bool((ours.lse[:, :, :dead] == -torch.inf).all())
    assert torch.equal(ours.entropy[:, :, :dead], torch.zeros(2, 2, dead))
    assert bool((ours.argmax[:, :, :dead] == -1).all())


def test_scores_that_overflow_are_not_hidden():
    problem = problem_of(**qkv(40, 40, batch=1, heads=1), options=Options())
    problem.q[0, 0, 7], problem.k[0, 0, 3] = 1e20, 1e20
    ours = native.attend(problem, Riders(entropy=True))
    assert bool(ours.out[0, 0, 7].isnan().all())
    assert not bool(ours.lse[0, 0, 7].isfinite())
    assert bool(ours.out[0, 0, :7].isfinite().all())


# -- as `observe` uses it --------------------------------------------------------------------------------


def attends(leaves: dict, mask=None, columns: tuple[Tensor, ...] = (), **options) -> bool:
    return native.can_attend(problem_of(**leaves, options=Options(mask, **options)), list(columns))


def test_it_does_what_it_can_and_nothing_else():
    leaves = qkv(40, 40)
    assert attends(leaves)
    assert attends(leaves, Causal(), sink=torch.zeros(4))
    assert not attends(qkv(attending.FEW - 1, attending.SHORT + 1))
    assert attends(qkv(attending.FEW - 1, attending.SHORT))
    assert not attends({name: x.bfloat16() for name, x in leaves.items()})
    assert not attends({name: x.double() for name, x in leaves.items()})
    assert not attends(leaves, softcap=5.0)
    assert not attends(leaves, bias=torch.zeros(40, 40))
    assert not attends(leaves, dropout=0.1)
    assert not attends(leaves, scale=100.0)
    assert not attends(leaves, columns=(torch.tensor([torch.inf]),))
    for bad in (torch.nan, torch.inf, 1e30):
        assert not attends(leaves | {"k": leaves["k"].clone().fill_(bad)})


ROWS = [Entropy(), MaxScore(), MeanDistance(), SinkMass(), SegmentMass.bins(3, 63), ValueWeighted()]


@pytest.fixture
def attended(monkeypatch) -> list:
    calls, attend = [], native.attend
    monkeypatch.setattr(native, "attend", lambda *given: (calls.append(given), attend(*given))[1])
    return calls


@pytest.mark.parametrize("mask", [None, Causal(), Padding(torch.arange(63) % 7 > 0)], ids=str)
def test_row_statistics_ride_in_it(mask, attended):
    torch.manual_seed(6)
    leaves = qkv(65, 63, kv_heads=2)
    ours, theirs = (observe(**leaves, mask=mask, stats=ROWS, backend=name) for name in ("auto", "torch"))
    assert len(attended) == 1
    for x, y in zip([ours.out, ours.lse], [theirs.out, theirs.lse], strict=True):
        torch.testing.assert_close(x, y)
    for name, found in theirs.stats.items():
        torch.testing.assert_close(ours.stats[name], found, rtol=2e-5, atol=2e-5)


def test_statistics_of_the_whole_map_and_named_backends_do_without(attended):
    from regard.stats import ColumnMass

    leaves = qkv(65, 65)
    observe(**leaves, stats=[Entropy(), ColumnMass()])
    observe(**leaves, stats=[])
    for options in ({"backend": "torch"}, {"backend": "sdpa"}, {"differentiable": True}, {"softcap": 5.0}):
        observe(**leaves, stats=[Entropy()], **options)
    assert attended == []


def test_garbage_behind_the_mask_stays_there(attended):
    torch.manual_seed(7)
    leaves, mask = qkv(65, 130, heads=2), Padding(torch.arange(130) < 100)
    clean = observe(**leaves, mask=mask)
    assert len(attended) == 1
    for name in ("k", "v"):
        leaves[name][:, :, 100:] = torch.nan
    dirty = observe(**leaves, mask=mask)
    torch.testing.assert_close(dirty.out, clean.out)
    torch.testing.assert_close(dirty.entropy, clean.entropy, rtol=1e-5, atol=1e-5)


def test_gradients_are_as_good_as_eagers(attended):
    torch.manual_seed(8)
    leaves = qkv(65, 63, kv_heads=2) | {"sink": torch.randn(4)}
    mask = Causal()
    allowed = dense_mask(mask, leaves["q"], leaves["k"])
    judge(lambda x: observe(**x, mask=mask).out, lambda x: dense_attention(**x, allowed=allowed).out, leaves)
    assert len(attended) == 1


def test_a_column_of_infinities_is_left_to_torch(attended):
    class Far(ColumnStatistic):
        def columns(self, frame):
            return torch.full((1, 1, frame.k, 1), torch.inf)

        def finish(self, state, frame):
            return state["sums"][..., 0]

    seen = observe(**qkv(40, 40), stats=[Far()])
    assert attended == []
    assert bool((seen.far == torch.inf).all())


def test_the_output_is_what_attention_gives():
    torch.manual_seed(9)
    leaves = qkv(130, 130)
    out = observe(**leaves, mask=Causal()).out
    torch.testing.assert_close(out, attention(**leaves, mask=Causal()), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "mask", [None, Causal(), Dense(torch.rand(700, 900) < 0.4)], ids=["none", "causal", "dense"]
)
def test_neither_threads_nor_repeats_change_a_bit(mask):
    torch.manual_seed(10)
    leaves = qkv(700, 900, batch=1, heads=3)

    def run() -> list[Tensor]:
        seen = observe(**leaves, mask=mask, stats=ROWS[:4])
        return [seen.out, seen.lse, seen.entropy, seen.mean_distance, *seen.max_score, seen.sink_mass]

    one = run()
    for count in (1, 2, 3, 8):
        with threads(count):
            assert all(torch.equal(a, b) for a, b in zip(run(), one, strict=True))


def test_a_head_and_a_batch_row_keep_their_bits_in_any_company():
    torch.manual_seed(11)
    leaves = qkv(130, 130, batch=3, heads=4)
    whole = observe(**leaves, mask=Causal()).out
    alone = observe(**{name: x[1:2, 2:3] for name, x in leaves.items()}, mask=Causal()).out
    assert torch.equal(whole[1:2, 2:3], alone)


@pytest.mark.parametrize("capability", BUILDS)
def test_every_build_says_the_same(capability, monkeypatch):
    monkeypatch.setattr(attending, "load", lambda: native.load(capability=capability))
    torch.manual_seed(12)
    assert_same(*streamed(qkv(65, 600, kv_heads=2, dim=33), mask=Causal()))
