"""Starting a kernel once more, without asking again how it is compiled.

Triton looks at every argument of every launch, in Python, and short texts wait for it. What it looks for are
few things that seldom change, and as long as they do not, the compiled kernel is started as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from threading import local
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.engine.triton.configs import TESTED_TRITON
from regard.memo import Recent

__all__ = ["aligned", "hooks", "start"]

# Kernels compiled for one set of lengths, dims and questions; more than that and the oldest is asked again.
MOST = 256
INT32_END = 1 << 31
# What the compiler is told beside arguments.
OPTIONS = ("num_warps", "num_stages", "maxnreg")
# And what it is always told: a product and a sum may be one instruction, which later releases want to hear.
ALWAYS_OPTIONS = {"enable_fp_fusion": True}


class LaunchRecorder(Protocol):
    """Who wants to know what is started, to start it again with other tensors in their places."""

    def started(self, run: Callable[..., None], grid: tuple[int, ...], values: tuple[Any, ...]) -> None: ...


class Precompiler(Protocol):
    """Who goes through a call before its kernels are there, and from the first that is missing on starts
    none."""

    missing: bool

    def compile_later(
        self, kernel: Any, grid: tuple[int, ...], values: Sequence[Any], options: dict
    ) -> None: ...

    def skip(self, values: Sequence[Any]) -> None: ...


class _Hooks(local):
    """Whoever listens in this thread, and whoever goes ahead."""

    recorder: LaunchRecorder | None = None
    precompiler: Precompiler | None = None


hooks = _Hooks()


def aligned(size: int) -> int:
    """So many 32-bit numbers, and up to three more: what comes behind them begins at a multiple of 16 bytes.

    Where it does not, that is another kernel to the compiler.
    """
    return -(-size // 4) * 4


def start(kernel: Any, grid: tuple[int, ...], *given: Any, **named: Any) -> None:
    """`kernel[grid](*given, **named)`."""
    if hooks.recorder is None:
        _start(kernel, grid, given, named)
        return
    with torch._C.DisableTorchFunction():
        run, grid, values = _start(kernel, grid, given, named)
    hooks.recorder.started(run, grid, values)


def _start(
    kernel: Any, grid: tuple[int, ...], given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Callable[..., None], tuple[int, ...], tuple[Any, ...]]:
    """Start a kernel, and say how to start it once more: what to call with a grid and values."""
    if not hasattr(kernel, "params") or kernel.pre_run_hooks:
        if hooks.precompiler is not None and hooks.precompiler.missing:
            hooks.precompiler.skip((*given, *named.values()))
            return _skipped, grid, ()
        kernel[grid](*given, **named)
        return _PlainLaunch(kernel, tuple(named)), grid, (*given, *named.values())
    # Kernels are found by their address: hashing one takes a look at its source.
    starter = _kernels.get(id(kernel))
    if starter is None:
        starter = _kernels[id(kernel)] = _CompiledVariants(kernel)
    return starter.start(grid, given, named)


@dataclass(frozen=True)
class _PlainLaunch:
    """A kernel as everybody may call it, the last of its arguments by name."""

    kernel: Any
    names: tuple[str, ...]

    def __call__(self, grid: tuple[int, ...], values: Sequence[Any]) -> None:
        first = len(values) - len(self.names)
        self.kernel[grid](*values[:first], **dict(zip(self.names, values[first:], strict=True)))


@dataclass(frozen=True)
class _CompiledVariants:
    """What has been compiled of one kernel."""

    kernel: Any
    compiled: Recent[Callable[..., None]] = field(default_factory=lambda: Recent(MOST))
    readers: dict[Any, Callable[[tuple[Any, ...]], Any]] = field(default_factory=dict)
    pickers: dict[int, Callable[[dict[str, Any]], tuple[Any, ...]]] = field(default_factory=dict)

    def start(
        self, grid: tuple[int, ...], given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Callable[..., None], tuple[int, ...], tuple[Any, ...]]:
        pick = self.pickers.get(len(given))
        if pick is None:
            pick = self.pickers[len(given)] = _argument_picker(self.kernel.arg_names[len(given) :])
        values = given + pick(named)
        types = tuple(map(type, values))
        read = self.readers.get(types)
        if read is None:
            read = self.readers[types] = _key_reader(self.kernel.params, types)
        options = tuple([(name, named[name]) for name in OPTIONS if name in named])
        device = torch.cuda.current_device()
        key = (types, read(values), device, options)
        found, ahead = self.compiled.get(key), hooks.precompiler
        if ahead is not None and (ahead.missing or found is None):
            if found is None:
                ahead.compile_later(self.kernel, grid, values, dict(options) | ALWAYS_OPTIONS)
            ahead.skip(values)
            return _skipped, grid, ()
        if found is None:
            if len(given) + len(named) > len(values) + len(options):
                raise TypeError(f"{self.kernel} takes {self.kernel.arg_names}, and was given {[*named]}.")
            made = self.kernel[grid](*values, **dict(options), **ALWAYS_OPTIONS)
            found = self.compiled[key] = _fast_launcher(made, device)
        else:
            found((*grid, 1, 1)[:3], values)
        return found, (*grid, 1, 1)[:3], values


def _skipped(grid: tuple[int, ...], values: Sequence[Any]) -> None:
    """Stands for a kernel that was not started."""


_kernels: dict[int, _CompiledVariants] = {}


def _argument_picker(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Picks arguments by name, as a tuple in this order."""
    return itemgetter(*names) if len(names) > 1 else lambda named: tuple([named[name] for name in names])


def _fast_launcher(compiled: Any, device: int) -> Callable[[tuple[int, ...], Sequence[Any]], None]:
    """How to start a compiled kernel on a device, given a grid and arguments.

    As Triton does it, less what it prepares for those who watch launches, unless somebody does, and for
    kernels that want room of their own, which ours do not.
    """
    import triton

    if not (
        isinstance(compiled, triton.compiler.CompiledKernel) and triton.__version__.startswith(TESTED_TRITON)
    ):
        return lambda grid, values: compiled[grid](*values)
    from triton import knobs
    from triton.runtime import driver

    active: Any = driver.active
    launcher: Any = compiled.run
    odd = getattr(launcher, "gsan_enabled", False)
    if odd or launcher.global_scratch_size or launcher.profile_scratch_size:
        return lambda grid, values: compiled[grid](*values)
    launch, stream = launcher.launch, active.get_current_stream
    how = (launcher.launch_cooperative_grid, launcher.launch_pdl)
    # From 3.7 on one function starts all kernels, and is told what arguments they take.
    one = hasattr(launcher, "kernel_signature")
    if one:
        told = (launcher.arg_annotations, launcher.kernel_signature)
        how += (compiled.packed_metadata, None, None, None, None, None, *told)
    else:
        how += (None, None, compiled.packed_metadata, None, None, None)
    function, watching = compiled.function, knobs.runtime

    def start(grid: tuple[int, ...], values: Sequence[Any]) -> None:
        if watching.launch_enter_hook.calls or watching.launch_exit_hook.calls:
            compiled[grid](*values)
        elif one:
            launch(*grid, stream(device), function, *how, values)
        else:
            launch(*grid, stream(device), function, *how, *values)

    # An address will do for a tensor.
    start.by_address = True  # pyright: ignore[reportFunctionMemberAccess]
    return start


def _key_reader(params: list[Any], types: tuple[type, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """What a compiled kernel depends on, read from arguments of these types.

    That is every compile-time argument; of a tensor its dtype and whether it begins at a multiple of 16
    bytes; of a descriptor its blocks; of an integer whether 32 bits hold it, and where Triton looks for
    factors in it, whether it is 1 or a multiple of 16.
    """
    constants, tensors, boxes, integers, factored = [], [], [], [], []
    for index, (param, kind) in enumerate(zip(params, types, strict=True)):
        if param.is_constexpr:
            constants.append(index)
        elif issubclass(kind, Tensor):
            tensors.append(index)
        elif hasattr(kind, "__dataclass_fields__"):
            boxes.append(index)
        elif kind is int:
            integers.append(index)
            if not param.do_not_specialize:
                factored.append(index)
        elif kind is not float:
            raise TypeError(f"{param.name} is a {kind.__name__}, which no kernel of ours takes.")
    constant, integer = _picked(constants), _picked(integers)

    def read(values: tuple[Any, ...]) -> Any:
        some = [values[index] for index in tensors]
        beside = [x.data_ptr() & 15 for x in some]
        numbers = integer(values)
        return (
            constant(values),
            max(numbers) < INT32_END or numbers,
            tuple([x if x < 16 else 16 + (x & 15) for x in [values[index] for index in factored]]),
            tuple([x.dtype for x in some]),
            tuple(beside) if any(beside) else (),
            tuple([(x.base.dtype, *x.block_shape) for x in [values[index] for index in boxes]]),
        )

    return read


def _picked(indices: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """The items at these indices as a tuple that is never empty: (0,) where there are none."""
    if not indices:
        return lambda values: (0,)
    # The last one twice: of one index alone an itemgetter gives the item, and no tuple.
    return itemgetter(*indices, indices[-1])
