"""TMA descriptors for tiles of one head and for lines of one number per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from regard.engine.triton.operands import steps
from regard.memo import remembered

__all__ = ["line_descriptor", "row_steps", "tile_descriptor"]

TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def tile_descriptor(x: Tensor, rows: int, heads: int = 0) -> TensorDescriptor:
    """A TMA descriptor for tiles of `rows` rows; `heads` heads are treated as one batch row."""
    shape, strides = x.shape, x.stride()
    if heads:
        batch, count, *rest = shape
        shape, strides = (batch * count // heads, heads, *rest), (heads * strides[1], *strides[1:])
    return _of(x, _tile_pattern(shape, strides, x.dtype, rows))


def row_steps(name: str, x: Tensor, heads: int = 0) -> dict[str, int]:
    """The strides of batch rows, heads and rows, as arguments named after a tensor; `heads` heads are treated
    as one batch row."""
    batch, head, row = x.stride()[:3]
    return {f"{name}_b": heads * head if heads else batch, f"{name}_h": head, f"{name}_n": row}


def line_descriptor(x: Tensor, count: int) -> TensorDescriptor:
    """A TMA descriptor for `count` numbers of one row of a matrix."""
    return _of(x, _line_pattern(x.shape, x.stride(), count))


def _of(x: Tensor, pattern: TensorDescriptor) -> TensorDescriptor:
    """The descriptor of this tensor, copied from a checked pattern."""
    if x.data_ptr() % 16:
        raise ValueError("the copy engine takes tensors that begin at a multiple of 16 bytes.")
    made = object.__new__(TensorDescriptor)
    made.__dict__.update(pattern.__dict__, base=x)
    return made


@remembered(256)
def _tile_pattern(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, rows: int
) -> TensorDescriptor:
    block = [1, 1, rows, shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, TYPES[dtype])
    return _pattern(dtype, shape, steps(shape, strides), block, layout)


@remembered(256)
def _line_pattern(shape: tuple[int, ...], strides: tuple[int, ...], count: int) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    return _pattern(torch.float32, shape, strides, [1, count], layout)


def _pattern(
    dtype: torch.dtype, shape: tuple[int, ...], strides: Sequence[int], block: list[int], layout: Any
) -> TensorDescriptor:
    """A descriptor without a tensor. The constructor checks the other fields, which is slow, so it runs once
    per pattern."""
    nothing = torch.empty(1, dtype=dtype, device="meta")
    return TensorDescriptor(nothing, list(shape), list(strides), block, layout)
