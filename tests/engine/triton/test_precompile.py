"""Kernels that a call compile_later are compiled before it is made, all that it can be known to need."""

from __future__ import annotations

import pytest
import torch

from engine.triton.test_start import Kernel as Plain
from regard.engine.inputs import Options, problem_of
from regard.engine.observing import observed
from regard.engine.triton import configs, hopper, operands
from regard.engine.triton.forward import launch as forward
from regard.engine.triton.hopper.argmax import launch as argmax
from regard.engine.triton.hopper.forward import launch as hopper_forward
from regard.engine.triton.hopper.second_pass import sweep as hopper_sweep
from regard.engine.triton.hopper.topk import launch as topk
from regard.engine.triton.launch import precompile as precompile_module
from regard.engine.triton.launch import start as start_module
from regard.engine.triton.launch.precompile import precompile_and_run
from regard.engine.triton.launch.start import start
from regard.engine.triton.schedule import intervals as intervals_module
from regard.engine.triton.second_pass import sweep
from regard.masks import Causal
from regard.stats import ColumnMass, Decay, Entropy, MaxScore, Pooled, SinkMass, TopK


class Kernel(Plain):
    """Stands in for one of Triton's: it fills a tensor with its scale, and keeps a common diary."""

    def __init__(self, name: str, diary: list[str]) -> None:
        super().__init__()
        self.name, self.diary = name, diary

    def __getitem__(self, grid):
        return self._run

    def _run(self, *values, **options):
        self.diary.append(f"start {self.name}")
        values[0].fill_(values[3])
        return {(1, 1, 1): self._run}

    def warmup(self, *values, grid, **options):
        self.diary.append(f"compile {self.name}")


@pytest.fixture
def diary(monkeypatch) -> list[str]:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return []


def fill(kernel: Kernel, x: torch.Tensor, scale: float) -> torch.Tensor:
    start(kernel, (1,), x, 16, len(x), scale, SIZE=64)
    return x


def test_all_are_compiled_before_the_first_is_started(diary):
    a, b = Kernel("a", diary), Kernel("b", diary)

    def call():
        return fill(a, torch.empty(8), 2.0) + fill(b, torch.empty(8), 3.0)

    assert precompile_and_run(call).tolist() == [5.0] * 8
    assert diary == ["compile a", "compile b", "start a", "start b"]
    diary.clear()
    assert precompile_and_run(call).tolist() == [5.0] * 8
    assert diary == ["start a", "start b"]


def test_what_is_there_is_started_until_one_is_lacking(diary):
    a, b, c = (Kernel(name, diary) for name in "abc")
    fill(a, torch.empty(8), 1.0)
    diary.clear()
    precompile_and_run(lambda: [fill(each, torch.empty(8), 1.0) for each in (a, b, a, c)])
    assert diary == ["start a", "compile b", "compile c", *(f"start {name}" for name in "abac")]


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum() > 0,
        lambda x: (x * 2)[1:].max().item() > 0,
        lambda x: torch.arange(8.0)[x.long()].sum() > 0,
        lambda x: torch.zeros(8).copy_(x).cpu().tolist()[0] > 0,
        lambda x: len(x.nonzero()) > 0,
    ],
)
def test_tensors_that_were_not_written_are_not_read(diary, read):
    a, b = Kernel("a", diary), Kernel("b", diary)

    def call():
        x = fill(a, torch.full((8,), -1e9), 2.0)
        return fill(b, x, 3.0) if read(x) else x

    assert precompile_and_run(call).tolist() == [3.0] * 8
    assert diary == ["compile a", "start a", "start b"]


def test_a_view_of_an_unwritten_tensor_is_not_read_either(diary):
    a, b = Kernel("a", diary), Kernel("b", diary)

    def call():
        x = torch.empty(8)
        view = x[4:]
        fill(a, x, 2.0)
        return fill(b, x, 3.0) if view[0] > 0 else x

    assert precompile_and_run(call).tolist() == [3.0] * 8
    assert diary == ["compile a", "start a", "start b"]


def test_what_has_nothing_to_do_with_kernels_is_read(diary):
    a, b = Kernel("a", diary), Kernel("b", diary)

    def call():
        x, table = torch.empty(8), torch.tensor([1, 2])
        fill(a, x, 2.0)
        return fill(b, x, 3.0) if table.cpu().tolist() == [1, 2] else x

    assert precompile_and_run(call).tolist() == [3.0] * 8
    assert diary == ["compile a", "compile b", "start a", "start b"]


def test_empty_tensors_never_count_as_unwritten(diary):
    # All of them have the same address.
    a, b = Kernel("a", diary), Kernel("b", diary)

    def call():
        fill(a, torch.empty(0), 2.0)
        some = torch.tensor([0, 0]).nonzero().squeeze(1)
        return fill(b, torch.empty(8), 3.0) if torch.arange(8)[some].sum() == 0 else None

    assert precompile_and_run(call).tolist() == [3.0] * 8
    assert diary == ["compile a", "compile b", "start a", "start b"]


def test_a_kernel_that_is_watched_is_not_started_ahead(diary):
    a, b = Kernel("a", diary), Kernel("b", diary)
    b.pre_run_hooks.append(print)
    precompile_and_run(lambda: [fill(each, torch.empty(8), 1.0) for each in (a, b)])
    assert diary == ["compile a", "start a", "start b"]


def test_what_goes_wrong_is_said_once_all_are_there(diary):
    a, made = Kernel("a", diary), []

    def call():
        made.append(fill(a, torch.empty(8), 2.0))
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        precompile_and_run(call)
    assert diary == ["compile a", "start a"]
    with pytest.raises(ValueError, match="wrong"):
        precompile_and_run(call)
    assert len(made) == 3


def test_what_goes_wrong_ahead_only_does_not_matter(diary):
    a = Kernel("a", diary)

    def call():
        x = fill(a, torch.empty(8), 2.0)
        if start_module.hooks.precompiler is not None:
            raise ValueError("garbage")
        return x

    assert precompile_and_run(call).tolist() == [2.0] * 8


def test_a_kernel_that_cannot_be_compiled_says_so_when_it_is_started(diary):
    from concurrent.futures import Future

    a = Kernel("a", diary)
    failed = Future()
    failed.set_exception(RuntimeError("no such instruction"))

    def warmup(*values, grid, **options):
        from triton.runtime._async_compile import active_mode

        mode = active_mode.get()
        assert mode is not None
        mode.executor.submit = lambda compile_it: failed
        mode.submit("a", print, print)

    def run(*values, **options):
        raise RuntimeError("no such instruction")

    a.warmup, a._run = warmup, run
    with pytest.raises(RuntimeError, match="no such instruction"):
        precompile_and_run(lambda: fill(a, torch.empty(8), 2.0))


def test_an_older_triton_compiles_one_after_the_other(diary, monkeypatch):
    monkeypatch.delattr("triton.AsyncCompileMode")
    precompile_module._has_async_compile.cache_clear()
    a, b = Kernel("a", diary), Kernel("b", diary)
    precompile_and_run(lambda: [fill(each, torch.empty(8), 1.0) for each in (a, b)])
    precompile_module._has_async_compile.cache_clear()
    assert diary == ["start a", "start b"]


def test_an_interrupt_restores_modes_and_hooks(diary):
    from triton.runtime._async_compile import active_mode

    a = Kernel("a", diary)

    def call():
        fill(a, torch.empty(8), 2.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        precompile_and_run(call)
    assert active_mode.get() is None
    assert start_module.hooks.precompiler is None
    assert torch.overrides._get_current_function_mode_stack() == []
    assert diary == ["compile a"]


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="tensors are the host's, and with a GPU nothing is interpreted there"
)
@pytest.mark.parametrize("n", [300, 8300], ids=["short", "long"])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
def test_a_first_call_on_hopper_gets_to_its_last_kernel(monkeypatch, mask, n):
    going_ahead, started, kept = [], [], []

    def pretend(kernel, grid, *values, **named):
        ahead, given = precompile_module.hooks.precompiler, [*values, *named.values()]
        (started if ahead is None else going_ahead).append(kernel.__name__)
        # On a device nothing of the host is where tensors were that it has let go of.
        kept.append(given)
        if ahead is not None:
            ahead.missing or ahead._begin()
            ahead.skip(given)

    def begin(ahead):
        ahead.missing = True
        ahead.__enter__()

    def here(table):
        with torch._C.DisableTorchFunction():
            return table.once("here", lambda: (table.low.clone(), table.high.clone()))

    monkeypatch.setattr(precompile_module._Precompiler, "_begin", begin)
    monkeypatch.setattr(
        precompile_module._Precompiler, "close", lambda ahead: ahead.__exit__(None, None, None)
    )
    monkeypatch.setattr(intervals_module.Schedule, "_on_host", property(here))
    monkeypatch.setattr(hopper, "applicable", lambda problem: True)
    monkeypatch.setattr(operands, "config", lambda kernel, *_: configs.TABLE[kernel, 9, 64])
    for module in (forward, sweep, hopper_forward, hopper_sweep, argmax, topk):
        monkeypatch.setattr(module, "start", pretend)
    q, k, v = torch.zeros(3, 1, 2, n, 64, dtype=torch.bfloat16).unbind()
    asked = (Entropy(), MaxScore(), SinkMass(), ColumnMass(), Decay(), Pooled(64, "both"), TopK(8))
    stats = {statistic.name: statistic for statistic in asked}
    # By the second of these all that the first one asks for is compiled.
    observed(problem_of(q, k, v, Options(mask)), stats, "triton", differentiable=False)
    assert going_ahead == started
    assert "hopper_forward_kernel" in started
    assert "reduce_diagonals_kernel" in started
