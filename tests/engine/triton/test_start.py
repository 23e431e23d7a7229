"""A compiled kernel is started again only where Triton would have chosen the same one."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace

import pytest
import torch

from regard.engine.triton.launch import fast_launch, untested
from regard.engine.triton.launch import start as start_module
from regard.engine.triton.launch.start import MOST, start


class Kernel:
    """Stands in for one of Triton's, and counts what it is asked and what is started without asking."""

    def __init__(self) -> None:
        names = ["X", "stride", "length", "scale", "SIZE"]
        self.arg_names, self.pre_run_hooks = names, []
        self.params = [
            SimpleNamespace(name=name, is_constexpr=name == "SIZE", do_not_specialize=name == "length")
            for name in names
        ]
        self.asked, self.started = [], []

    def __getitem__(self, grid):
        return lambda *values, **options: self.asked.append((grid, values, options)) or Compiled(self)


class Compiled:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *values: self.kernel.started.append((grid, values))


@pytest.fixture
def kernel(monkeypatch) -> Kernel:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return Kernel()


X = torch.zeros(64)


def test_the_second_start_bypasses_the_public_launcher(kernel):
    start(kernel, (5, 2), X, 16, 100, 0.5, SIZE=64, num_warps=4)
    start(kernel, (7, 3), X, 16, 200, 0.25, SIZE=64, num_warps=4)
    assert kernel.asked == [((5, 2), (X, 16, 100, 0.5, 64), {"num_warps": 4} | start_module.ALWAYS_OPTIONS)]
    assert kernel.started == [((7, 3, 1), (X, 16, 200, 0.25, 64))]


def test_arguments_by_name_come_in_the_order_of_the_kernel(kernel):
    for _ in range(2):
        start(kernel, (1,), SIZE=64, scale=0.5, num_warps=4, length=100, X=X, stride=16)
    assert kernel.asked == [((1,), (X, 16, 100, 0.5, 64), {"num_warps": 4} | start_module.ALWAYS_OPTIONS)]
    assert kernel.started == [((1, 1, 1), (X, 16, 100, 0.5, 64))]


@pytest.mark.parametrize(
    "change",
    [
        {"X": torch.zeros(64, dtype=torch.float16)},
        {"X": X[1:]},
        {"stride": 1},
        {"stride": 17},
        {"stride": 1 << 40},
        {"length": 1 << 31},
        {"SIZE": 32},
        {"SIZE": 64.0},
        {"num_warps": 8},
    ],
    ids=str,
)
def test_what_a_compiled_kernel_depends_on_is_asked_again(kernel, change):
    usual = {"X": X, "stride": 16, "length": 100, "scale": 0.5, "SIZE": 64, "num_warps": 4}
    start(kernel, (1,), **usual)
    start(kernel, (1,), **{**usual, **change})
    assert (len(kernel.asked), len(kernel.started)) == (2, 0)
    start(kernel, (1,), **usual)
    start(kernel, (1,), **{**usual, **change})
    assert (len(kernel.asked), len(kernel.started)) == (2, 2)


def test_strides_of_one_kind_are_not_asked_again(kernel):
    for stride in (16, 32, 4096, 17, 33, 1):
        start(kernel, (1,), X, stride, 100, 0.5, SIZE=64)
    assert [values[1] for _, values, _ in kernel.asked] == [16, 17, 1]


def test_true_is_not_one(kernel):
    for size in (1, True, 1, True):
        start(kernel, (1,), X, 16, 100, 0.5, SIZE=size)
    assert [values[-1] is True for _, values, _ in kernel.asked] == [False, True]
    assert [values[-1] is True for _, values in kernel.started] == [False, True]


def test_other_devices_have_their_own(kernel, monkeypatch):
    start(kernel, (1,), X, 16, 100, 0.5, SIZE=64)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    start(kernel, (1,), X, 16, 100, 0.5, SIZE=64)
    assert (len(kernel.asked), len(kernel.started)) == (2, 0)


def test_a_kernel_that_is_watched_is_always_asked(kernel):
    kernel.pre_run_hooks.append(print)
    for _ in range(2):
        start(kernel, (1,), X, 16, 100, 0.5, SIZE=64)
    assert (len(kernel.asked), len(kernel.started)) == (2, 0)


def test_no_more_than_so_many_are_kept(kernel):
    for size in range(MOST + 2):
        start(kernel, (1,), X, 16, 100, 0.5, SIZE=size)
    start(kernel, (1,), X, 16, 100, 0.5, SIZE=MOST + 1)
    assert (len(kernel.asked), len(kernel.started)) == (MOST + 2, 1)
    start(kernel, (1,), X, 16, 100, 0.5, SIZE=0)
    assert (len(kernel.asked), len(kernel.started)) == (MOST + 3, 1)


def test_what_no_kernel_takes_is_named(kernel):
    with pytest.raises(TypeError, match="scale is a str"):
        start(kernel, (1,), X, 16, 100, "0.5", SIZE=64)


def test_a_name_that_no_argument_has_is_refused(kernel):
    with pytest.raises(TypeError, match=r"was given .*num_warp"):
        start(kernel, (1,), X, 16, 100, 0.5, SIZE=64, num_warp=4)


class Triton:
    """One of Triton's own compiled kernels, as far as starting it goes."""

    function, packed_metadata = "function", "packed"

    def __init__(self, room: int = 0) -> None:
        import triton
        from triton.backends.nvidia.driver import CudaLauncher

        self.asked, self.started = [], []
        # Triton's own, but for what it compiles to start a kernel.
        self.run = object.__new__(CudaLauncher)
        self.run.launch = lambda *given: self.started.append(given)
        self.run.global_scratch_size, self.run.profile_scratch_size = room, 0
        self.run.global_scratch_align = self.run.profile_scratch_align = self.run.num_ctas = 1
        self.run.launch_cooperative_grid, self.run.launch_pdl = "cooperative", "dependent"
        self.run.gsan_enabled = False
        if not triton.__version__.startswith("3.6."):
            self.run.arg_annotations, self.run.kernel_signature = "annotations", "signature"

    def __getitem__(self, grid):
        return lambda *values: self.asked.append((grid, values))


@pytest.fixture
def compiled(monkeypatch) -> Triton:
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton.compiler, "CompiledKernel", Triton)
    monkeypatch.setattr(fast_launch, "TESTED_TRITON", (triton.__version__,))
    driver = SimpleNamespace(get_current_stream=lambda device: f"stream of {device}")
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=driver))
    return Triton()


def test_a_compiled_kernel_is_started_as_triton_would(compiled):
    fast_launch.launcher_of(compiled, 3)((5, 2, 1), (X, 16))
    compiled.run(5, 2, 1, "stream of 3", "function", "packed", None, None, None, X, 16)
    ours, tritons = compiled.started
    assert len(ours) == len(tritons)
    assert all(a is b or a == b for a, b in zip(ours, tritons, strict=True))
    assert compiled.asked == []


def test_the_shared_launch_function_gets_the_types_of_each_kernel(compiled):
    compiled.run.arg_annotations, compiled.run.kernel_signature = "annotations", "signature"
    fast_launch.launcher_of(compiled, 3)((5, 2, 1), (X, 16))
    (given,) = compiled.started
    assert given[:7] == (5, 2, 1, "stream of 3", "function", "cooperative", "dependent")
    assert given[7:-1] == ("packed", None, None, None, None, None, "annotations", "signature")
    assert given[-1][0] is X
    assert given[-1][1] == 16


@pytest.mark.usefixtures("compiled")
def test_a_kernel_that_wants_room_of_its_own_is_started_by_triton():
    greedy = Triton(room=16)
    fast_launch.launcher_of(greedy, 3)((5, 2, 1), (X, 16))
    assert (greedy.asked, greedy.started) == ([((5, 2, 1), (X, 16))], [])


def test_who_watches_launches_sees_them(compiled, monkeypatch):
    knobs = pytest.importorskip("triton.knobs")
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [print])
    fast_launch.launcher_of(compiled, 3)((5, 2, 1), (X, 16))
    assert (compiled.asked, compiled.started) == ([((5, 2, 1), (X, 16))], [])


def test_an_untested_triton_launches_by_its_public_api_and_warns_once(compiled, monkeypatch):
    monkeypatch.setattr(fast_launch, "TESTED_TRITON", ("0.",))
    monkeypatch.setattr(untested, "_warned", set())
    with pytest.warns(
        RuntimeWarning, match=r"is untested .* public API, so short texts wait longer\. Tested: 3"
    ):
        launch = fast_launch.launcher_of(compiled, 3)
    launch((5, 2, 1), (X, 16))
    # Warnings are errors here: a second one would fail.
    fast_launch.launcher_of(compiled, 3)((5, 2, 1), (X, 16))
    assert (compiled.asked, compiled.started) == ([((5, 2, 1), (X, 16))] * 2, [])


def test_with_the_switch_off_kernels_launch_by_the_public_api(compiled, monkeypatch):
    monkeypatch.setenv("REGARD_REPLAY", "0")
    fast_launch.launcher_of(compiled, 3)((5, 2, 1), (X, 16))
    assert (compiled.asked, compiled.started) == ([((5, 2, 1), (X, 16))], [])


def test_descriptors_are_expanded_as_by_triton():
    driver = pytest.importorskip("triton.backends.nvidia.driver")
    from triton.tools.tensor_descriptor import TensorDescriptor

    launched, count = [], getattr(driver, "_BASE_ARGS_FORMAT_LEN", None)
    first, second = (TensorDescriptor.from_tensor(torch.zeros(4, n), [2, n]) for n in (16, 32))
    signature = {"X": "tensordesc<fp32[2,16]>", "n": "i32", "Y": "tensordesc<fp32[2,32]>", "scale": "fp32"}
    values = [first, 7, second, 0.5]
    wrapped = driver.wrap_handle_tensordesc(lambda *given: launched.append(given), signature, None)
    if count is None:
        wrapped("stream", values)
    else:
        wrapped(*["stream"] * count, *values)
    launch, expand = fast_launch._expanded(wrapped)
    launch("stream", expand(values))
    theirs, ours = launched
    theirs = theirs[1] if count is None else theirs[count:]
    assert len(ours[1]) > 12
    for a, b in zip(theirs, ours[1], strict=True):
        assert a is b or a == b


def test_a_descriptor_is_encoded_once_for_an_address_and_a_shape(monkeypatch):
    driver = pytest.importorskip("triton.backends.nvidia.driver")
    from triton.tools.tensor_descriptor import TensorDescriptor

    encoded = []

    def encode(x, meta):
        encoded.append(x)
        return [meta, x.base.data_ptr(), *x.shape]

    monkeypatch.setattr(driver, "make_tensordesc_arg", encode)
    wrapped = driver.wrap_handle_tensordesc(print, {"X": "tensordesc<fp32[2,16]>", "n": "i32"}, ["meta"])
    _, expand = fast_launch._expanded(wrapped)
    first = TensorDescriptor.from_tensor(torch.zeros(4, 16), [2, 16])
    moved, longer = copy(first), copy(first)
    moved.base, longer.shape = torch.zeros(4, 16), [3, 16]
    for x in (first, moved, longer, first, longer, moved):
        assert expand([x, 7]) == ["meta", x.base.data_ptr(), *x.shape, 7]
    assert encoded == [first, moved, longer]
    monkeypatch.setattr(fast_launch, "MOST_DESCRIPTORS", 3)
    for rows in (5, 6, 7, 8):
        longer.shape = [rows, 16]
        assert expand([longer, 7])[2] == rows


def test_a_launcher_without_descriptors_is_taken_as_it_is():
    assert fast_launch._expanded(len) is None
    assert fast_launch._expanded(lambda: None) is None
