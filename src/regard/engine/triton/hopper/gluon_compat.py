"""Gluon functions whose names differ between releases of Triton; they mean the same since 3.6."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

__all__ = ["async_load", "barrier", "reinterpret"]

# A barrier for the threads of one warpgroup.
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
# Load a tile by TMA; an mbarrier is signalled when it has arrived.
async_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared

PRIVATE = gl.constexpr(hasattr(gl.shared_memory_descriptor, "_reinterpret"))


@gluon.jit
def reinterpret(memory, dtype: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
    """The same shared memory, viewed with this dtype, shape and layout."""
    if PRIVATE:
        return memory._reinterpret(dtype, shape, layout)
    else:
        return memory.reinterpret(dtype, shape, layout)
