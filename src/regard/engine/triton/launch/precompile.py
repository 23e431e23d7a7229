"""Kernels that nobody has compiled yet are compiled side by side.

The first call of its kind needs several, and each takes seconds. So from the first that is missing on it
starts none: it goes on only to say which others it needs. When all of them are there it is made once more.
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
from regard.engine.triton.replay.recorder import METADATA, function_name, is_recordable
from regard.errors import BackendError

__all__ = ["precompile_and_run"]

Result = TypeVar("Result")

# Kernels that are compiled at once.
MOST = 8


def precompile_and_run(call: Callable[[], Result]) -> Result:
    """What `call` returns, which changes nothing: it may be made twice."""
    if hooks.recorder is not None or hooks.precompiler is not None or not _has_async_compile():
        return call()
    ahead = hooks.precompiler = _Precompiler()
    try:
        result = call()
        if not ahead.missing:
            return result
        del result
    except Exception:
        # What nobody has written may be anything. If it was not that, it will be said once more.
        if not ahead.missing:
            raise
    finally:
        hooks.precompiler = None
        ahead.close()
    return call()


@cache
def _has_async_compile() -> bool:
    """Whether there is a Triton that compiles several kernels at once: older ones do not."""
    try:
        from triton import AsyncCompileMode  # noqa: F401
    except ImportError:
        return False
    return True


class _Precompiler(TorchFunctionMode):
    """Goes through a call without starting kernels, from the first that is missing on.

    What would have been given to a kernel counts as unwritten, and so does what is made of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.missing = False
        self.unwritten: set[int] = set()

    def compile_later(self, kernel: Any, grid: tuple[int, ...], values: Sequence[Any], options: dict) -> None:
        """A kernel is not compiled: have it compiled by somebody else."""
        if not self.missing:
            self._begin()
        with torch._C.DisableTorchFunction():
            self.context.run(kernel.warmup, *values, grid=grid, **options)

    def skip(self, values: Sequence[Any]) -> None:
        """A kernel is not started."""
        self.unwritten.update(_storages(values))

    def close(self) -> None:
        """Wait until all are compiled. What goes wrong does so again where the kernel is needed."""
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
        # Whatever becomes of this call, others do not find themselves in that mode.
        self.context = copy_context()
        self.context.run(self.mode.__enter__)
        self.__enter__()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        homes = set(_storages([args, kwargs]))
        unwritten = not homes.isdisjoint(self.unwritten)
        known = function_name(func) in METADATA
        if unwritten and not known and not is_recordable(func, args):
            raise BackendError("this call wants to know what is in a tensor that no kernel has written.")
        result = func(*args, **kwargs)
        if unwritten and not known:
            self.unwritten.update(homes, _storages(result))
        return result


class _Workers(ThreadPoolExecutor):
    """Who compiles kernels, and what starts them: that Triton has built by a C compiler, when it is first
    asked for."""

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
    """Where the tensors in `x` are, and those that descriptors are of.

    Empty ones are nowhere, which has one address for all of them: nobody waits for what is in there.
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
