"""Calls that come again give what they would have given, and those that may differ are made as ever."""

from __future__ import annotations

import ctypes
from threading import Event, Thread, current_thread, main_thread
from types import SimpleNamespace
from weakref import ref

import pytest
import torch

from regard import Causal, ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK, Window, attention, observe
from regard.engine.triton.launch import start as start_module
from regard.engine.triton.launch.start import start
from regard.engine.triton.replay import calls, tape
from regard.engine.triton.replay.calls import replay_or_record
from regard.errors import BackendError
from regard.stats import ColumnMax, Custom, Histogram, MeanDistance, SinkMass

STATISTICS = {
    "rows": [Entropy(), MaxScore(), SinkMass(), MeanDistance()],
    "everything": [Entropy(), MaxScore(), ColumnMass(), Decay(), Pooled(16, "both"), TopK(3)],
    "columns": [ColumnMass(normalise=True)],
    "column maxima": [ColumnMax()],
    "histogram": [Histogram(edges=(0.01, 0.1))],
}


def tapes() -> list[bool]:
    """Of each kind of call that is known, whether it is played."""
    return [history.tape is not None for history in calls._histories.values()]


def everything_of(seen) -> list[torch.Tensor]:
    parts = [seen.out, seen.lse]
    for value in seen.stats.values():
        parts += [value] if isinstance(value, torch.Tensor) else list(value)
    return parts


@pytest.mark.parametrize("mask", [None, Causal(), Window(20)], ids=str)
@pytest.mark.parametrize("asked", STATISTICS)
def test_a_call_that_comes_again_gives_the_same_bits(device, asked, mask):
    # The interpreter takes seconds for a hundred tokens.
    heads, n, dtype = (2, 100, torch.bfloat16) if device == "cuda" else (1, 40, torch.float32)

    def call(seed: int):
        generator = torch.Generator().manual_seed(seed)
        q, k, v = torch.randn(3, 1, heads, n, 64, generator=generator).to(device, dtype).unbind()
        return observe(q, k, v, mask, stats=STATISTICS[asked], backend="triton")

    # The first is made, two are heard, and the last is played.
    *_, seen = [call(seed) for seed in range(4)]
    assert tapes() == [True]
    calls.forget()
    anew = call(3)
    assert type(anew.stats) is type(seen.stats)
    assert [*anew.stats] == [*seen.stats]
    for got, wanted in zip(everything_of(seen), everything_of(anew), strict=True):
        assert got.dtype == wanted.dtype
        assert got.stride() == wanted.stride()
        assert torch.equal(got, wanted)


def test_what_a_call_returned_is_its_own(device):
    q, k, v = torch.randn(3, 1, 1, 64, 64, device=device).unbind()
    first, *_, last = [observe(q * i, k, v, stats=[Entropy()], backend="triton") for i in range(6)]
    assert tapes() == [True]
    again = observe(q * 5, k, v, stats=[Entropy()], backend="triton")
    assert again.entropy.data_ptr() != last.entropy.data_ptr()
    assert torch.equal(again.entropy, last.entropy)
    torch.testing.assert_close(first.entropy, torch.full_like(first.entropy, 64.0).log())


def kinds() -> int:
    """How many kinds of calls have come once or more often."""
    return len(calls._hashes_seen)


def test_shapes_strides_masks_and_requests_have_distinct_call_keys(device):
    q, k, v = torch.randn(3, 1, 2, 64, 64, device=device).unbind()
    turned = torch.randn(1, 64, 2, 64, device=device).transpose(1, 2)
    observe(q, k, v, stats=[Entropy()], backend="triton")
    observe(q, k, v, stats=[Entropy()], backend="triton")
    assert kinds() == 1
    observe(q[:, :, :50], k, v, stats=[Entropy()], backend="triton")
    observe(turned, k, v, stats=[Entropy()], backend="triton")
    observe(q, k, v, Causal(), stats=[Entropy()], backend="triton")
    observe(q, k, v, Window(9), stats=[Entropy()], backend="triton")
    observe(q, k, v, stats=[Entropy().named("other")], backend="triton")
    observe(q, k, v, stats=[Entropy()], scale=0.5, backend="triton")
    assert kinds() == 7
    # Equal questions are one kind, whatever is in the tensors that they bring.
    rows = [torch.rand(64, device=device) for _ in range(2)]
    for some in (None, None, rows[0], rows[0], rows[1]):
        observe(q, k, v, stats=[ColumnMass(rows=some)], backend="triton")
    assert kinds() == 9


def test_a_played_call_reads_the_weights_of_queries_that_it_is_given(device):
    q, k, v = torch.randn(3, 1, 1, 40, 64, device=device).unbind()
    rows = torch.ones(40, device=device)
    for _ in range(4):
        before = observe(q, k, v, stats=[ColumnMass(rows=rows)], backend="triton").column_mass
    rows.mul_(2.0)
    after = observe(q, k, v, stats=[ColumnMass(rows=rows)], backend="triton").column_mass
    other = observe(q, k, v, stats=[ColumnMass(rows=torch.full_like(rows, 3.0))], backend="triton")
    assert tapes() == [True]
    assert torch.equal(after, 2 * before)
    torch.testing.assert_close(other.column_mass, 3 * before)


def test_a_tensor_that_is_query_key_and_value_at_once_is_another_kind(device):
    x, y, z = torch.randn(3, 1, 2, 64, 64, device=device).unbind()
    for inputs in ((x, x, x), (x, y, y), (x, y, z), (x, y, x)):
        for _ in range(5):
            seen = observe(*inputs, stats=[Entropy()], backend="triton")
        q, k, v = (each.double() for each in inputs)
        weights = (q @ k.mT / 8).softmax(-1)
        torch.testing.assert_close(seen.out.double(), weights @ v, rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(
            seen.entropy.double(), -(weights * weights.log()).sum(-1), rtol=1e-2, atol=1e-2
        )
    assert tapes() == [True] * 4


def test_a_bias_is_no_kind(device):
    q, k, v = torch.randn(3, 1, 2, 64, 64, device=device).unbind()
    for _ in range(4):
        observe(q, k, v, stats=[Entropy()], bias=torch.zeros(1, 1, 64, 64, device=device), backend="triton")
    assert kinds() == 0


@pytest.mark.parametrize(("mask", "with_sink"), [(None, False), (Causal(), True)], ids=["plain", "sink"])
def test_training_comes_again_with_the_same_bits(device, mask, with_sink):
    n, dtype = (100, torch.bfloat16) if device == "cuda" else (40, torch.float32)

    def gradients(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        q, k, v, upstream = torch.randn(4, 1, 2, n, 64, generator=generator).to(device, dtype).unbind()
        own = [x.clone().requires_grad_() for x in (q, k, v)]
        sink = torch.nn.Parameter(torch.randn(2, generator=generator).to(device)) if with_sink else None
        out = attention(*own, mask, sink=sink, backend="triton")
        return [out, *torch.autograd.grad(out, own if sink is None else [*own, sink], upstream)]

    *_, found = [gradients(seed) for seed in range(4)]
    # The forward is one kind of call, the backward another.
    assert tapes() == [True, True]
    calls.forget()
    for got, wanted in zip(found, gradients(3), strict=True):
        assert torch.equal(got, wanted)
        assert got.dtype == wanted.dtype


def test_gradients_of_lse_are_another_kind_than_those_of_the_output(device):
    q, k, v = torch.randn(3, 1, 1, 40, 64, device=device).unbind()
    x = q.clone().requires_grad_()
    for of_lse in (False, True) * 5:
        seen = observe(x, k, v, stats=[Entropy()], backend="triton")
        (got,) = torch.autograd.grad(seen.out.sum() + (seen.lse.sum() if of_lse else 0), x)
        truth = observe(x, k, v, stats=[Entropy()], backend="torch")
        (wanted,) = torch.autograd.grad(truth.out.sum() + (truth.lse.sum() if of_lse else 0), x)
        torch.testing.assert_close(got, wanted, atol=1e-2, rtol=1e-2)
    # One forward, and a backward of each.
    assert tapes() == [True] * 3


def test_statistics_of_users_are_asked_every_time(device):
    calls, tiles = [], []

    class Counting(Entropy):
        def check(self, frame):
            calls.append(frame)

    def measure(tile):
        tiles.append(tile)
        return tile.weights.sum((-2, -1))

    q, k, v = torch.randn(3, 1, 1, 64, 64, device=device).unbind()
    for _ in range(5):
        observe(q, k, v, stats=[Counting().named("mine")], backend="torch" if device == "cpu" else "auto")
        observe(q, k, v, stats=[Custom(measure)])
    assert len(calls) == 5
    assert len(tiles) % 5 == 0
    assert tiles


class Doubling:
    """Stands in for a kernel: y = 2 x + `more`."""

    def __getitem__(self, grid):
        return lambda x, y, more: y.copy_(2 * x + more)


DOUBLING = Doubling()


def doubled(x: torch.Tensor, more: float = 0.0) -> torch.Tensor:
    y = x.new_empty(x.shape)
    start(DOUBLING, (1,), x, y, more=more)
    return y


def test_steps_are_played_with_other_inputs():
    table = torch.arange(3.0)

    def call(x):
        some = SimpleNamespace(y=doubled(x, more=1.0))
        head, tail = (some.y + table).split([1, 2])
        return {"sum": torch.stack([head[0], tail.sum()]), "rest": (tail, 7, None)}

    for i in range(6):
        x = torch.tensor([1.0, 2.0, 3.0]) * i
        found = replay_or_record("kind", [x], lambda x=x: call(x))
        y = 2 * x + 1 + table
        torch.testing.assert_close(found["sum"], torch.stack([y[0], y[1:].sum()]))
        torch.testing.assert_close(found["rest"][0], y[1:])
        assert found["rest"][1:] == (7, None)
    assert tapes() == [True]


def test_compiled_kernels_are_played_with_addresses(monkeypatch):
    table, started = torch.arange(3.0), []

    def run(grid, values):
        started.append((grid, values))

    run.by_address = True
    monkeypatch.setattr(start_module, "_start", lambda kernel, grid, given, named: (run, grid, given))

    def call(x):
        y = x.new_empty(x.shape)
        start(DOUBLING, (1,), x, y, table, 0.5)
        return y

    first, x = torch.zeros(3), torch.zeros(3)
    for _ in range(3):
        replay_or_record("kind", [first], lambda: call(first))
    assert tapes() == [True]
    y = replay_or_record("kind", [x], lambda: call(x))
    assert started == [((1,), [x.data_ptr(), y.data_ptr(), table.data_ptr(), 0.5])]


class ByAddress:
    """Stands in for a compiled kernel that gets addresses: y = 2 x + z, where z is full of zeros."""

    def __init__(self, count: int) -> None:
        self.count, self.by_address, self.seen = count, True, []

    def __call__(self, grid, values) -> None:
        x, y, z = ((ctypes.c_float * self.count).from_address(int(value)) for value in values)
        self.seen.append([int(value) for value in values])
        for i in range(self.count):
            y[i] = 2 * x[i] + z[i]
            # The next call must find zeros again.
            z[i] = 7.0


def test_buffers_that_only_kernels_use_share_one_allocation(monkeypatch):
    run = ByAddress(5)

    def start_one(kernel, grid, given, named):
        run(grid, [value.data_ptr() for value in given])
        return run, grid, given

    monkeypatch.setattr(start_module, "_start", start_one)

    def call(x):
        some, result = x.new_empty(x.shape), x.new_empty(x.shape)
        first, second = torch.zeros(5), x.new_zeros(5)
        start(DOUBLING, (1,), x, some, first)
        start(DOUBLING, (1,), some, result, second)
        return result

    for i in range(6):
        x = torch.arange(5.0) + i
        assert replay_or_record("kind", [x], lambda x=x: call(x)).tolist() == (4 * x).tolist()
    assert tapes() == [True]
    (x, some, first), (_, result, second) = run.seen[-2:]
    assert [second - first, some - second] == [256, 256]
    assert not 0 <= result - first < 768


def test_buffers_that_are_large_or_read_by_torch_are_allocated_apart(monkeypatch):
    run = ByAddress(5)

    def start_one(kernel, grid, given, named):
        run(grid, [value.data_ptr() for value in given])
        return run, grid, given

    monkeypatch.setattr(start_module, "_start", start_one)
    monkeypatch.setattr(tape, "ARENA_BYTES", 256)

    def call(x):
        some, large, summed = x.new_empty(5), x.new_empty(100), x.new_empty(5)
        start(DOUBLING, (1,), x, some, torch.zeros(5))
        start(DOUBLING, (1,), some, large, torch.zeros(100))
        start(DOUBLING, (1,), large, summed, torch.zeros(5))
        return summed + summed

    for i in range(6):
        x = torch.arange(5.0) + i
        assert replay_or_record("kind", [x], lambda x=x: call(x)).tolist() == (16 * x).tolist()
    assert tapes() == [True]


def test_a_tape_lets_go_of_what_it_does_not_need():
    alive = []

    class Watching(Doubling):
        def __getitem__(self, grid):
            def run(x, y, more):
                alive.append([one() is not None for one in seen])
                seen.append(ref(y))
                y.copy_(x)

            return run

    watching, seen = Watching(), []

    def call(x):
        for _ in range(3):
            y = x.new_empty(x.shape)
            start(watching, (1,), x, y, more=0.0)
            x = y
        return x

    x = torch.zeros(5)
    for _ in range(3):
        replay_or_record("kind", [x], lambda: call(x))
    assert tapes() == [True]
    seen.clear()
    alive.clear()
    replay_or_record("kind", [x], lambda: call(x))
    # The third kernel reads what the second wrote; what the first wrote is gone.
    assert alive == [[], [True], [False, True]]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: x + float(x.sum()),
        lambda x, n: x[x > 0],
        lambda x, n: doubled(x, more=float(n)),
        lambda x, n: x + torch.from_numpy(x.numpy() * 1.0),
        lambda x, n: x.sum() if n % 2 else x,
        lambda x, n: (x, n),
    ],
    ids=["reads", "shape", "number", "unheard", "branch", "result"],
)
def test_calls_that_may_differ_are_made_as_ever(call):
    for n in range(6):
        x = torch.randn(4)
        got = replay_or_record("kind", [x], lambda n=n, x=x: call(x, n))
        wanted = call(x, n)
        torch.testing.assert_close(got, wanted)
    assert True not in tapes()


def test_the_oldest_kinds_are_forgotten_and_what_came_once_is_not_held(monkeypatch):
    monkeypatch.setattr(calls._histories, "most", 3)
    monkeypatch.setattr(calls._hashes_seen, "most", 4)
    for kind in range(5):
        replay_or_record(kind, [], lambda: None)
    assert not calls._histories
    assert [*calls._hashes_seen] == [hash((kind,)) for kind in range(1, 5)]
    for kind in range(1, 5):
        replay_or_record(kind, [], lambda: None)
    assert [*calls._histories] == [(2,), (3,), (4,)]


def test_errors_are_raised_and_the_next_call_is_heard():
    x = torch.ones(2)

    def fail():
        raise ValueError("no")

    replay_or_record("kind", [x], lambda: x + 1)
    with pytest.raises(ValueError, match="no"):
        replay_or_record("kind", [x], fail)
    for _ in range(3):
        assert replay_or_record("kind", [x], lambda: x + 1).tolist() == [2, 2]
    assert tapes() == [True]


@pytest.mark.usefixtures("_no_tapes")
def test_the_switch_turns_recording_off(monkeypatch, device):
    q = torch.randn(1, 1, 9, 16, device=device)
    monkeypatch.setenv("REGARD_REPLAY", "0")
    for _ in range(4):
        observe(q, q, q, stats=[Entropy()], backend="triton")
    assert tapes() == []
    monkeypatch.setenv("REGARD_REPLAY", "1")
    for _ in range(4):
        observe(q, q, q, stats=[Entropy()], backend="triton")
    assert True in tapes()


def test_another_value_of_the_switch_is_an_error(monkeypatch, device):
    q = torch.randn(1, 1, 9, 16, device=device)
    monkeypatch.setenv("REGARD_REPLAY", "off")
    with pytest.raises(BackendError, match=r"REGARD_REPLAY is 'off'; set it to 0 \(off\) or 1 \(on"):
        observe(q, q, q, stats=[Entropy()], backend="triton")


def test_while_one_thread_records_others_run_the_call_themselves():
    recording, go_on, made = Event(), Event(), []

    def call(x):
        if current_thread() is not main_thread():
            recording.set()
            assert go_on.wait(60)
        made.append(current_thread())
        return x + 1.0

    x = torch.zeros(3)
    # The first call with a key is not recorded, the second is.
    replay_or_record("key", [x], lambda: call(x))
    other = Thread(target=lambda: replay_or_record("key", [x], lambda: call(x)))
    other.start()
    assert recording.wait(60)
    assert replay_or_record("key", [x], lambda: call(x)).tolist() == [1.0] * 3
    go_on.set()
    other.join()
    assert tapes() == [False]
    for _ in range(2):
        assert replay_or_record("key", [x], lambda: call(x)).tolist() == [1.0] * 3
    assert (tapes(), len(made)) == ([True], 4)


def test_threads_that_share_a_key_get_their_own_results():
    inputs = [torch.full((3,), float(i)) for i in range(8)]
    found: dict[int, list[list[float]]] = {i: [] for i in range(8)}

    def work(i: int) -> None:
        for _ in range(20):
            found[i].append(replay_or_record("shared", [inputs[i]], lambda: inputs[i] * 2.0).tolist())

    threads = [Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: [[2.0 * i] * 3] * 20 for i in range(8)}
