"""Decode steps of a text that grows are replayed, and give what the ordinary steps give."""

from __future__ import annotations

from threading import Lock, Thread

import pytest
import torch

from regard import Causal, ColumnMass, Entropy, MaxScore, TopK, Window, observe
from regard.engine import backends
from regard.engine.torch_backend.backend import TorchBackend
from regard.engine.triton.backend import TritonBackend
from regard.engine.triton.decode import launch as decode
from regard.engine.triton.decode import lengths
from regard.engine.triton.launch import start, switch
from regard.engine.triton.replay import calls, short
from regard.errors import MapError, StatisticError
from regard.stats import MeanDistance, SinkMass

ROWS = [Entropy(), MaxScore(), SinkMass(), MeanDistance()]


@pytest.fixture(autouse=True)
def ordinary(monkeypatch, device) -> list[int]:
    """The lengths of the steps that Python walked through; `auto` chooses the kernels on the CPU too."""

    class Here(TritonBackend):
        devices = ("cuda", "cpu")

    monkeypatch.setattr(backends, "REGISTRY", (Here(), TorchBackend()))
    walked, plain = [], decode.decode

    def spied(problem, riders):
        walked.append(problem.k_len)
        return plain(problem, riders)

    monkeypatch.setattr(decode, "decode", spied)
    return walked


def cache(device, n, kv_heads=1, dim=16, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(2, 1, kv_heads, n, dim, generator=generator).to(device, dtype)


def query(device, length, heads=2, q=1, dim=16, dtype=torch.float32):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(1, heads, q, dim, generator=generator).to(device, dtype)


def results(seen) -> list[torch.Tensor]:
    parts = [seen.out, seen.lse, seen.map[0, 0]]
    for value in seen.stats.values():
        parts += [value] if isinstance(value, torch.Tensor) else list(value)
    return parts


def check(q, k, v, mask=None, stats=ROWS) -> None:
    """Observe, and compare with the same step run by Python alone."""
    seen = observe(q, k, v, mask, stats=stats)
    with switch.replay_off():
        plain = observe(q, k, v, mask, stats=stats)
    assert [*seen.stats] == [*plain.stats]
    assert seen.map.mask == plain.map.mask
    for got, wanted in zip(results(seen), results(plain), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert torch.equal(got, wanted)


def replayed(ordinary: list[int], made: list[int]) -> list[int]:
    """Of the lengths that `check` observed, those that Python walked through only once: for comparison."""
    return [n for n in made if ordinary.count(n) == 1]


@pytest.mark.parametrize("stats", [ROWS, [TopK(3)], [*ROWS, TopK(2)], [MaxScore()]], ids=len)
@pytest.mark.parametrize(
    ("mask", "q"),
    [(None, 1), (Causal(), 1), (Causal(), 3), (Causal() & Window(20), 2)],
    ids=["none", "causal", "several queries", "window"],
)
def test_a_text_that_grows_step_by_step_is_replayed(mask, q, stats, device, ordinary):
    k, v = cache(device, 80)
    made = [40, 41, 42, 43, 64, 65, 80]
    for n in made:
        check(query(device, n, q=q), k[:, :, :n], v[:, :, :n], mask, stats)
    assert replayed(ordinary, made) == made[3:]
    assert [history.tape is not None for history in calls._histories.values()] == [True]


def test_other_lengths_may_be_split_otherwise(device, ordinary, monkeypatch):
    monkeypatch.setattr(decode, "PER_PROCESSOR", 3)
    k, v = cache(device, 300)
    block = 32 if device == "cpu" else 64
    made = [block - 1, block, block + 1, 2 * block + 1, 4 * block, 4 * block + 1, 290, 5]
    splits = {decode.split(n, block, 3) for n in made}
    assert len(splits) > 3
    for n in made:
        check(query(device, n), k[:, :, :n], v[:, :, :n])
    # A statistic may want as many keys as there were when it was recorded.
    assert replayed(ordinary, made) == made[3:-1]


def test_more_rounds_of_choosing_keys_are_another_recording(device, ordinary, monkeypatch):
    monkeypatch.setattr(decode, "PIECE", 4)
    monkeypatch.setattr(lengths, "PIECE", 4)
    k, v = cache(device, 300)
    block = 32 if device == "cpu" else 64
    made = [*range(100, 105), *range(4 * block + 1, 4 * block + 6)]
    for n in made:
        check(query(device, n), k[:, :, :n], v[:, :, :n], stats=[TopK(2)])
    assert len(calls._histories) == 2
    assert replayed(ordinary, made[:5]) == made[3:5]
    assert replayed(ordinary, made[5:]) == made[8:]


def test_keys_that_are_copied_at_each_step_are_replayed_too(device, ordinary):
    k, v = cache(device, 80)
    made = [50, 51, 52, 53, 54]
    for n in made:
        check(query(device, n), k[:, :, :n].clone(), v[:, :, :n].clone())
    assert replayed(ordinary, made) == made[3:]


def test_strides_for_which_another_kernel_is_compiled_are_not(device, ordinary):
    k, v = cache(device, 80, dim=24)
    made = [50, 51, 52, 53, 54]
    for n in made:
        check(query(device, n, dim=24), k[:, :, :n], v[:, :, :n])
    assert replayed(ordinary, made) == []


def test_a_window_hides_keys_from_some_length_on(device, ordinary):
    mask = Window(45)
    k, v = cache(device, 80)
    made = [40, 41, 42, 43, 44, 50, 51, 52, 53, 54]
    for n in made:
        check(query(device, n), k[:, :, :n], v[:, :, :n], mask)
    assert replayed(ordinary, made) == [43, 44, 53, 54]


def test_dtypes_heads_masks_and_statistics_are_kinds_of_their_own(device, ordinary):
    kinds = [
        {},
        {"dtype": torch.float16},
        {"heads": 4},
        {"kv_heads": 2},
        {"mask": Causal() & Window(9)},
        {"stats": [Entropy()]},
        {"q": 2},
    ]
    for kind in kinds:
        about = {"dtype": kind.get("dtype", torch.float32)}
        k, v = cache(device, 60, kv_heads=kind.get("kv_heads", 1), **about)
        ordinary.clear()
        made = [40, 41, 42, 43]
        for n in made:
            q = query(device, n, heads=kind.get("heads", 2), q=kind.get("q", 1), **about)
            check(q, k[:, :, :n], v[:, :, :n], kind.get("mask"), kind.get("stats", ROWS))
        assert replayed(ordinary, made) == [43]
    assert len(calls._histories) == len(kinds)


def test_inputs_that_were_changed_in_place_are_read_anew(device, ordinary):
    k, v = cache(device, 60)
    q = query(device, 1)
    for n in (40, 41, 42, 43):
        before = observe(q, k[:, :, :n], v[:, :, :n], stats=ROWS)
    k.mul_(2.0)
    v.add_(1.0)
    with pytest.raises(MapError, match="k was changed in place"):
        _ = before.map[0, 0]
    check(q, k[:, :, :43], v[:, :, :43])
    assert ordinary == [40, 41, 42, 43]


def test_results_of_a_step_are_its_own(device):
    k, v = cache(device, 60)
    seen = [observe(query(device, n), k[:, :, :n], v[:, :, :n]) for n in range(40, 47)]
    again = [x.clone() for x in results(seen[4])]
    seen[5].entropy.zero_()
    seen[5].lse.fill_(torch.nan)
    for got, wanted in zip(results(seen[4]), again, strict=True):
        assert torch.equal(got, wanted)
    assert seen[5].max_score.value.isfinite().all()


def test_too_few_keys_for_a_statistic_are_an_error_as_ever(device):
    k, v = cache(device, 60)
    for n in (40, 41, 42, 43):
        observe(query(device, n), k[:, :, :n], v[:, :, :n], stats=[TopK(30)])
    with pytest.raises(StatisticError, match="30"):
        observe(query(device, 1), k[:, :, :20], v[:, :, :20], stats=[TopK(30)])


def test_what_other_kernels_compute_is_replayed_for_its_length(device, ordinary):
    k, v = cache(device, 60)
    for n in (40, 41, 42, 43):
        check(query(device, n), k[:, :, :n], v[:, :, :n], stats=[ColumnMass()])
    assert replayed(ordinary, [40, 41, 42, 43]) == []
    ordinary.clear()
    for seed in range(5):
        check(query(device, seed), k[:, :, :44], v[:, :, :44], stats=[ColumnMass()])
    # Python walks through three of them, and through all for the comparison.
    assert len(ordinary) == 8


def test_the_switch_turns_growing_off(device, ordinary, monkeypatch):
    monkeypatch.setenv("REGARD_REPLAY", "0")
    k, v = cache(device, 60)
    for n in range(40, 46):
        observe(query(device, n), k[:, :, :n], v[:, :, :n])
    assert ordinary == [*range(40, 46)]
    assert not calls._histories


def test_gradients_of_steps_are_those_of_the_ordinary_way(device):
    k, v = cache(device, 60)

    def gradient(n: int) -> torch.Tensor:
        q = query(device, n).requires_grad_()
        seen = observe(q, k[:, :, :n], v[:, :, :n], stats=[Entropy()])
        return torch.autograd.grad(seen.out.sum() + seen.lse.sum(), q)[0]

    for n in range(40, 46):
        found = gradient(n)
        with switch.replay_off():
            assert torch.equal(found, gradient(n))


def test_whole_calls_are_replayed_before_they_are_validated(device, monkeypatch):
    """A second call with the same shapes passes the same checks."""
    played, play = [], short._Replay.observe
    monkeypatch.setattr(short._Replay, "observe", lambda *given: played.append(1) or play(*given))
    k, v = cache(device, 40)
    for seed in range(6):
        check(query(device, seed, q=20), k, v, Causal(), [Entropy(), ColumnMass()])
    assert len(played) == 3
    # Other shapes, strides or dtypes are other calls.
    check(query(device, 7, q=21), k, v, Causal(), [Entropy(), ColumnMass()])
    check(query(device, 7, q=20), k.mT.contiguous().mT, v, Causal(), [Entropy(), ColumnMass()])
    assert len(played) == 3


def test_threads_take_their_own_steps(device, monkeypatch):
    # Triton's interpreter runs one kernel at a time.
    alone, run = Lock(), start._PlainLaunch.__call__

    def run_alone(self, grid, values):
        with alone:
            run(self, grid, values)

    monkeypatch.setattr(start._PlainLaunch, "__call__", run_alone)
    k, v = cache(device, 120)
    for n in (40, 41, 42):
        observe(query(device, n), k[:, :, :n], v[:, :, :n])
    found: dict[int, list] = {}

    def work(first: int) -> None:
        found[first] = [observe(query(device, n), k[:, :, :n], v[:, :, :n]) for n in range(first, first + 6)]

    threads = [Thread(target=work, args=(first,)) for first in (43, 60, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for first, some in found.items():
        for n, seen in zip(range(first, first + 6), some, strict=True):
            with switch.replay_off():
                plain = observe(query(device, n), k[:, :, :n], v[:, :, :n])
            for got, wanted in zip(results(seen), results(plain), strict=True):
                assert torch.equal(got, wanted)
