"""Loads the compiled kernels of engine/native for the processor's instruction set, once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_double, c_float, c_int64, c_uint, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

__all__ = ["Job", "Library", "Run", "load"]

# PyTorch's name for the instruction set, and the build for it; see building/native.py.
BUILDS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3", "DEFAULT": "x86-64-v2"}
SUFFIXES = (".so", ".dylib", ".dll")
# The functions that Python calls.
SYMBOLS = (
    *("regard_isa", "regard_job_size", "regard_has_threads", "regard_fold", "regard_launch"),
    *("regard_within", "regard_within_strided", "regard_exp", "regard_log"),
)


class Run(ctypes.Structure):
    """`struct run` of job.h."""

    _fields_ = (
        ("first", c_int64),
        ("stop", c_int64),
        ("allowed", c_void_p),
        ("allowed_stride", c_int64),
    )


class Job(ctypes.Structure):
    """`struct job` of job.h, which documents the fields."""

    _fields_ = (
        *((name, c_int64) for name in ("row_start", "row_stop", "n_runs")),
        *((name, c_void_p) for name in ("runs", "low", "high")),
        *((name, c_void_p) for name in ("q", "k", "scores", "lse")),
        *((name, c_int64) for name in ("q_stride", "k_stride", "dim", "scores_stride", "scores_first")),
        ("scale", c_double),
        *((name, c_void_p) for name in ("entropy", "distance", "peak", "peak_key")),
        ("offset", c_int64),
        *((name, c_void_p) for name in ("sums", "columns", "support")),
        *((name, c_int64) for name in ("n_columns", "columns_stride")),
        *((name, c_void_p) for name in ("top", "top_key")),
        ("top_k", c_int64),
        *((name, c_void_p) for name in ("column_sums", "diagonals", "row_weights")),
        ("column_tops", c_void_p),
        *((name, c_void_p) for name in ("block_sums", "block_tops")),
        *((name, c_int64) for name in ("size", "block_stride")),
        *((name, c_void_p) for name in ("v", "out", "out_lse")),
        *((name, c_int64) for name in ("v_stride", "v_dim", "out_stride")),
        *((name, c_void_p) for name in ("mass", "members", "divergence")),
        ("n_members", c_int64),
        *((name, c_void_p) for name in ("bins", "borders")),
        *((name, c_int64) for name in ("n_borders", "bins_of_scores")),
    )


@dataclass(frozen=True)
class Library:
    """The kernels of one instruction set; a call releases the GIL, so that threads run in parallel."""

    path: Path
    functions: ctypes.CDLL
    # The same for calls that are over in a few microseconds, and keep the GIL.
    brief: ctypes.PyDLL
    # Whether it uses PyTorch's own thread pool.
    has_threads: bool

    @property
    def isa(self) -> str:
        """The instruction set it was compiled for: AVX512, AVX2, NEON or baseline."""
        return self.functions.regard_isa().decode()

    def fold(self, jobs: Sequence[int], threads: int) -> None:
        """Run the jobs at these addresses: each adds its cells to its sums. Two jobs must not write to the
        same memory."""
        if threads == 1 or self.has_threads:
            self._fold(jobs, threads)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda job: self._fold([job], 1), jobs))

    def _fold(self, jobs: Sequence[int], threads: int) -> None:
        pointers = (c_void_p * len(jobs))(*jobs)
        if self.functions.regard_fold(pointers, c_int64(len(jobs)), c_uint(threads)):
            raise MemoryError("no memory left for the panels of an attention map")

    def launch(self, *given: Any) -> None:
        """Run a table of jobs on other tensors; `given` are the arguments of `regard_launch`."""
        if self.functions.regard_launch(*given):
            raise MemoryError("no memory left for the panels of an attention map")

    def within(self, x: torch.Tensor, limit: float) -> bool:
        """Whether no number of a float32 tensor is NaN or larger than this. If it is not contiguous, it must
        have four dimensions."""
        if x.is_contiguous():
            return self.brief.regard_within(x.data_ptr(), x.numel(), limit) != 0
        layout = (c_int64 * 8)(*x.shape, *x.stride())
        return self.brief.regard_within_strided(x.data_ptr(), layout, limit) != 0

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        """The kernels' exponential of a contiguous float32 tensor."""
        return self._each(self.functions.regard_exp, x)

    def log(self, x: torch.Tensor) -> torch.Tensor:
        """The kernels' logarithm of a contiguous float32 tensor."""
        return self._each(self.functions.regard_log, x)

    def _each(self, function: Callable[..., None], x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        function(c_void_p(x.data_ptr()), c_void_p(y.data_ptr()), c_int64(x.numel()))
        return y


@cache
def load(folder: Path = Path(__file__).parent / "native", capability: str | None = None) -> Library | str:
    """The kernels for this processor; if there are none, the reason as a string."""
    capability = torch.backends.cpu.get_cpu_capability() if capability is None else capability
    build = BUILDS.get(capability, "generic")
    found = [path for suffix in SUFFIXES for path in folder.glob(f"fold-{build}{suffix}")]
    # On ARM PyTorch says DEFAULT too, and there is one build.
    found += [path for suffix in SUFFIXES for path in folder.glob(f"fold-generic{suffix}")]
    if not found:
        return "the native kernels were not built when regard was installed"
    try:
        functions = ctypes.CDLL(str(found[0]))
    except OSError as error:
        return f"the native kernels do not load: {error}"
    missing = [name for name in SYMBOLS if not hasattr(functions, name)]
    if missing:
        lacks = f"{found[0].name} lacks {', '.join(missing)}"
        return f"{lacks}: it was built from other sources; install regard again"
    functions.regard_isa.restype = ctypes.c_char_p
    functions.regard_job_size.restype = c_int64
    if functions.regard_job_size() != ctypes.sizeof(Job):
        return "the native kernels were built from other sources than these; install regard again"
    functions.regard_launch.argtypes = (
        *(c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_int64, c_uint),
    )
    brief = ctypes.PyDLL(str(found[0]), handle=functions._handle)
    brief.regard_within.argtypes = (c_void_p, c_int64, c_float)
    brief.regard_within_strided.argtypes = (c_void_p, c_void_p, c_float)
    return Library(found[0], functions, brief, bool(functions.regard_has_threads()))
