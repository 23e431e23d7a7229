"""Compiles the kernels of a first call in parallel.

A first call needs up to thirteen kernels, which take seconds each to compile. From the first kernel on that
is not compiled, the call continues without launching anything, to find out which other kernels it needs.
These are compiled in parallel, and then the call runs again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.engine.triton.launch.start import hooks
from regard.engine.triton.launch.torch_functions import METADATA, function_name, is_recordable
from regard.errors import BackendError

__all__ = ["precompile_and_run"]

Result = TypeVar("Result")

# Kernels compiled in parallel at most.
MOST = 8


def precompile_and_run(call: Callable[[], Result]) -> Result:
    """Return `call()`, which must have no side effects: it may run twice."""
    if hooks.recorder is not None or hooks.precompiler is not None or not _has_async_compile():
        return call()
    ahead = hooks.precompiler = _Precompiler()
    try:
        result = call()
        if not ahead.missing:
            return result
        del result
    except Exception:
        # Possibly caused by reading memory that no kernel has written; a real error is raised again below.
        if not ahead.missing:
            raise
    finally:
        hooks.precompiler = None
        ahead.close()
    return call()


@cache
def _has_async_compile() -> bool:
    """Whether this Triton can compile kernels in parallel."""
    try:
        from triton import AsyncCompileMode  # noqa: F401
    except ImportError:
        return False
    return True


class _Precompiler(TorchFunctionMode):
    """Runs a call, without launching kernels from the first missing one on.

    It tracks tensors whose contents depend on a skipped kernel, because the call must not read them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.missing = False
        self.unwritten: set[int] = set()

    def compile_later(self, kernel: Any, grid: tuple[int, ...], values: Sequence[Any], options: dict) -> None:
        """Compile a kernel in a worker thread."""
        if not self.missing:
            self._begin()
        with torch._C.DisableTorchFunction():
            self.context.run(kernel.warmup, *values, grid=grid, **options)

    def skip(self, values: Sequence[Any]) -> None:
        """Note the tensors of a launch that is skipped."""
        self.unwritten.update(_storages(values))

    def close(self) -> None:
        """Wait for the workers. A failed compilation is raised again by the launch itself."""
        if not self.missing:
            return
        self.__exit__(None, None, None)
        try:
            self.context.run(self.mode.__exit__, None, None, None)
        finally:
            self.workers.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        from triton import AsyncCompileMode

        self.missing = True
        self.workers = _Workers(min(MOST, os.cpu_count() or 1))
        self.mode = AsyncCompileMode(self.workers, ignore_errors=True)
        # Run in a copied context, so that the mode can't leak out of this call.
        self.context = copy_context()
        self.context.run(self.mode.__enter__)
        self.__enter__()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        homes = set(_storages([args, kwargs]))
        unwritten = not homes.isdisjoint(self.unwritten)
        known = function_name(func) in METADATA
        if unwritten and not known and not is_recordable(func, args):
            raise BackendError("this call reads a tensor that no kernel has written yet.")
        result = func(*args, **kwargs)
        if unwritten and not known:
            self.unwritten.update(homes, _storages(result))
        return result


class _Workers(ThreadPoolExecutor):
    """Threads that compile kernels and their launchers, which Triton builds with a C compiler."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        return super().submit(self._both, fn)

    @staticmethod
    def _both(make: Callable[[], Any]) -> Any:
        from triton.runtime import driver

        kernel = make()
        active: Any = driver.active
        active.launcher_cls(kernel.src, kernel.metadata)
        return kernel


def _storages(x: Any) -> Iterator[int]:
    """Addresses of the storages of all tensors and descriptors in `x`.

    Empty tensors are left out: they all have the address 0.
    """
    if isinstance(x, Tensor):
        with torch._C.DisableTorchFunction():
            home = x.untyped_storage().data_ptr()
        if home:
            yield home
    elif isinstance(x, list | tuple):
        for part in x:
            yield from _storages(part)
    elif isinstance(x, dict):
        yield from _storages([*x.values()])
    elif hasattr(x, "block_shape"):
        yield from _storages(x.base)
