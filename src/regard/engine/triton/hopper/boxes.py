"""Blocks of rows of one head, as Hopper's copy engine takes them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from regard.engine.triton.operands import steps

__all__ = ["boxes", "lines"]

TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def boxes(x: Tensor, rows: int) -> TensorDescriptor:
    """A descriptor of `rows` rows at a time."""
    shape = [1, 1, rows, x.shape[3]]
    return TensorDescriptor(x, list(x.shape), steps(x), shape, _layout(rows, x.shape[3], x.dtype))


def lines(x: Tensor, count: int) -> TensorDescriptor:
    """A descriptor of `count` numbers of one row of a matrix at a time."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, count], layout)


@cache
def _layout(rows: int, dim: int, dtype: torch.dtype) -> Any:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, dim], TYPES[dtype])
