"""Starts kernels with little Python per launch.

Triton inspects every argument of every launch in Python; for short texts this takes longer than the kernel.
`start` caches compiled kernels by the few argument properties that select a variant, and launches them
directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from threading import local
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.engine.triton.launch.fast_launch import launcher_of
from regard.memo import Recent

__all__ = ["aligned", "argument_names", "hooks", "start"]

# The most compiled variants kept per kernel. The oldest is dropped first; Triton's own cache still has it.
MOST = 256
INT32_END = 1 << 31
# Compiler options that a launch may set.
OPTIONS = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion")
# Default options of every launch: allow fused multiply-adds, which later releases don't by default.
ALWAYS_OPTIONS = {"enable_fp_fusion": True}


class LaunchRecorder(Protocol):
    """Records every launch, so that it can be replayed with other tensors."""

    def started(
        self, kernel: Any, run: Callable[..., None], grid: tuple[int, ...], values: tuple[Any, ...]
    ) -> None: ...


class Precompiler(Protocol):
    """Collects kernels that are not compiled yet; once one is `missing`, no kernel is launched."""

    missing: bool

    def compile_later(
        self, kernel: Any, grid: tuple[int, ...], values: Sequence[Any], options: dict
    ) -> None: ...

    def skip(self, values: Sequence[Any]) -> None: ...


class _Hooks(local):
    """The recorder and the precompiler of this thread, if any."""

    recorder: LaunchRecorder | None = None
    precompiler: Precompiler | None = None


hooks = _Hooks()


def aligned(size: int) -> int:
    """A number of 32-bit elements, rounded up to a multiple of 16 bytes.

    Pointers of another alignment would compile another variant of a kernel.
    """
    return -(-size // 4) * 4


def start(kernel: Any, grid: tuple[int, ...], *given: Any, **named: Any) -> None:
    """`kernel[grid](*given, **named)`."""
    if hooks.recorder is None:
        _start(kernel, grid, given, named)
        return
    with torch._C.DisableTorchFunction():
        run, grid, values = _start(kernel, grid, given, named)
    hooks.recorder.started(kernel, run, grid, values)


def _start(
    kernel: Any, grid: tuple[int, ...], given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Callable[..., None], tuple[int, ...], tuple[Any, ...]]:
    """Start a kernel; returns the launcher, grid and values that start it again."""
    if not hasattr(kernel, "params") or kernel.pre_run_hooks:
        if hooks.precompiler is not None and hooks.precompiler.missing:
            hooks.precompiler.skip((*given, *named.values()))
            return _skipped, grid, ()
        kernel[grid](*given, **named)
        return _PlainLaunch(kernel, tuple(named)), grid, (*given, *named.values())
    # By address: hashing a JITFunction hashes its source.
    starter = _kernels.get(id(kernel))
    if starter is None:
        starter = _kernels[id(kernel)] = _CompiledVariants(kernel)
    return starter.start(grid, given, named)


def argument_names(kernel: Any, run: Callable[..., None]) -> tuple[str, ...]:
    """The names of the values with which `run` starts a kernel."""
    names: tuple[str, ...] = tuple(getattr(kernel, "arg_names", ()))
    if not isinstance(run, _PlainLaunch):
        return names
    return (*(name for name in names if name not in run.names), *run.names)


@dataclass(frozen=True)
class _PlainLaunch:
    """A launch through Triton's public API; the last arguments are passed by name."""

    kernel: Any
    names: tuple[str, ...]

    def __call__(self, grid: tuple[int, ...], values: Sequence[Any]) -> None:
        first = len(values) - len(self.names)
        self.kernel[grid](*values[:first], **dict(zip(self.names, values[first:], strict=True)))


@dataclass(frozen=True)
class _CompiledVariants:
    """The compiled variants of one kernel, by key."""

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
                ahead.compile_later(self.kernel, grid, values, ALWAYS_OPTIONS | dict(options))
            ahead.skip(values)
            return _skipped, grid, ()
        if found is None:
            if len(given) + len(named) > len(values) + len(options):
                raise TypeError(f"{self.kernel} takes {self.kernel.arg_names}, and was given {[*named]}.")
            made = self.kernel[grid](*values, **ALWAYS_OPTIONS | dict(options))
            found = self.compiled[key] = launcher_of(made, device)
        else:
            found((*grid, 1, 1)[:3], values)
        return found, (*grid, 1, 1)[:3], values


def _skipped(grid: tuple[int, ...], values: Sequence[Any]) -> None:
    """Used in place of a launch while missing kernels are collected."""


_kernels: dict[int, _CompiledVariants] = {}


def _argument_picker(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Return a function that picks these arguments, in this order."""
    return itemgetter(*names) if len(names) > 1 else lambda named: tuple([named[name] for name in names])


def _key_reader(params: list[Any], types: tuple[type, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that computes the key of the compiled variant from arguments of these types.

    Compile-time arguments count by value, tensors by dtype and 16-byte alignment, descriptors by dtype and
    block shape, integers by whether 32 bits hold them and, where Triton specialises, whether they are 1 or a
    multiple of 16.
    """
    constants, tensors, descriptors, integers, factored = [], [], [], [], []
    for index, (param, kind) in enumerate(zip(params, types, strict=True)):
        if param.is_constexpr:
            constants.append(index)
        elif issubclass(kind, Tensor):
            tensors.append(index)
        elif hasattr(kind, "__dataclass_fields__"):
            descriptors.append(index)
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
            tuple([(x.base.dtype, *x.block_shape) for x in [values[index] for index in descriptors]]),
        )

    return read


def _picked(indices: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """The items at these indices as a tuple that is never empty: (0,) where there are none."""
    if not indices:
        return lambda values: (0,)
    # Pass the last index twice: with a single index, itemgetter would return the item instead of a tuple.
    return itemgetter(*indices, indices[-1])
