"""The arguments of kernels for a problem: pointers, strides, flags."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.configs import Config, config, has_tma, width
from regard.engine.triton.schedule.plan import Plan, Runs, plan
from regard.scores import ALiBi

__all__ = ["Operands", "described", "packed", "steps", "strides"]


@dataclass(frozen=True)
class Operands:
    """The arguments that all kernels share: the tensors and numbers of a problem."""

    problem: Problem

    @cached_property
    def q(self) -> Tensor:
        """The queries, negated if the scale is negative: kernels take maxima before they scale."""
        q, scale = packed(self.problem.q), self.problem.scoring.scale
        return q if scale > 0 else -q if scale < 0 else torch.zeros_like(q)

    @cached_property
    def k(self) -> Tensor:
        return packed(self.problem.k)

    @cached_property
    def v(self) -> Tensor:
        return packed(self.problem.v)

    @property
    def scale(self) -> float:
        return abs(self.problem.scoring.scale) or 1.0

    @property
    def wide(self) -> int:
        return width(max(self.problem.q.shape[-1], self.problem.v.shape[-1]))

    def config(self, kernel: str) -> Config:
        return config(kernel, self.problem.q.device, self.wide, self.problem.q.dtype)

    def plan(self, blocks: tuple[int, int]) -> Plan:
        p = self.problem
        return plan(p.mask, p.q_len, p.k_len, p.offset, blocks, p.q.device)

    @cached_property
    def scoring(self) -> dict[str, Any]:
        """Arguments that turn raw products into scores."""
        scoring, p = self.problem.scoring, self.problem
        bias = scoring.bias.detach() if isinstance(scoring.bias, Tensor) else None
        slopes = scoring.bias.slopes if isinstance(scoring.bias, ALiBi) else None
        strides = (0, 0, 0, 0)
        if bias is not None:
            strides = bias.expand(p.batch, p.heads, p.q_len, p.k_len).stride()
        return {
            "BIAS": self.q if bias is None else bias,
            "SLOPES": self.q if slopes is None else slopes.detach().to(p.q.device, torch.float32),
            **dict(zip(("bias_b", "bias_h", "bias_q", "bias_k"), strides, strict=True)),
            "scale": self.scale,
            "softcap": 1.0 if scoring.softcap is None else float(scoring.softcap),
            "HAS_BIAS": bias is not None,
            "ALIBI": slopes is not None,
            "SOFTCAP": scoring.softcap is not None,
        }

    @cached_property
    def sizes(self) -> dict[str, Any]:
        p = self.problem
        return {
            "q_len": p.q_len,
            "k_len": p.k_len,
            "offset": p.offset,
            "heads": p.heads,
            "group": p.group,
            "DIM": p.q.shape[-1],
            "WIDTH": width(p.q.shape[-1]),
        }

    @property
    def plain(self) -> dict[str, Any]:
        """Queries and keys as pointers."""
        return {"Q": self.q, "K": self.k, **strides("q", self.q), **strides("k", self.k)}

    def pairs(self, cut: Config, both: bool = False, engine: bool = True) -> dict[str, Any]:
        """Queries and keys as arguments. With TMA, keys are passed as a descriptor; with `both`, queries too,
        for kernels that read them tile by tile. Making descriptors takes time: `engine=False` makes none."""
        found = {**self.plain, "TMA": engine and self.tma}
        if found["TMA"]:
            found["K"] = described(self.k, cut.block_k)
        if found["TMA"] and both:
            found["Q"] = described(self.q, cut.block_q)
        return found

    def values(self, cut: Config, engine: bool = True) -> dict[str, Any]:
        dim = self.problem.v.shape[-1]
        values = described(self.v, cut.block_k) if engine and self.tma else self.v
        return {"V": values, **strides("v", self.v), "V_DIM": dim, "V_WIDTH": width(dim)}

    @cached_property
    def tma(self) -> bool:
        return has_tma(self.problem.q.device) and all(_aligned(x) for x in (self.q, self.k, self.v))

    def visits(self, table: Plan, runs: Runs) -> dict[str, Any]:
        """Arguments that say which tiles to visit and which of their pairs may attend."""
        low, high = (runs.order, runs.order) if table.spans is None else table.spans
        if table.bits is None:
            stride_b, stride_h = (low.stride(i) if low.shape[i] > 1 else 0 for i in (0, 1))
        else:
            stride_b, stride_h = 0, table.bits.stride(0) if table.bits.shape[0] > 1 else 0
        blocks = runs.order.shape[1]
        return {
            "FULL_AT": runs.full_at,
            "FULL": runs.full,
            "EDGE_AT": runs.edge_at,
            "EDGE": runs.edge,
            "TILES": runs.tiles,
            "LOW": low,
            "HIGH": high,
            "BITS": runs.order if table.bits is None else table.bits,
            "mask_b": stride_b,
            "mask_h": stride_h,
            "plane_stride": blocks if table.planes > 1 else 0,
            "HAS_BITS": table.bits is not None,
            "BLOCK_Q": table.block_q,
            "BLOCK_K": table.block_k,
        }


def packed(x: Tensor) -> Tensor:
    """The tensor itself if its last stride is 1, as kernels need; otherwise a contiguous copy."""
    x = x.detach() if x.requires_grad else x
    return x if x.stride(-1) == 1 or math.prod(x.shape) == 0 else x.contiguous()


def _aligned(x: Tensor) -> bool:
    """Whether every row, head and batch row begins at a multiple of 16 bytes, as TMA requires."""
    steps = [x.stride(i) for i in range(3) if x.shape[i] > 1]
    return x.data_ptr() % 16 == 0 and all(step % (16 // x.itemsize) == 0 and step > 0 for step in steps)


def described(x: Tensor, block: int) -> Any:
    """A TMA descriptor for blocks of rows of one head."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(x, list(x.shape), steps(x.shape, x.stride()), [1, 1, block, width(x.shape[3])])


def steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The strides of a tensor, with a stride that TMA accepts for axes of length 1, where it has no
    effect."""
    anything = width(shape[3]) * max(1, shape[2])
    return [stride if n > 1 else anything for n, stride in zip(shape[:3], strides[:3], strict=True)] + [1]


def strides(name: str, x: Tensor) -> dict[str, int]:
    """The strides of batch rows, heads and rows, as arguments named after a tensor."""
    return dict(zip((f"{name}_b", f"{name}_h", f"{name}_n"), x.stride()[:3], strict=True))
