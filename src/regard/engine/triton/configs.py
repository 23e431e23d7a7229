"""Tile shapes and pipeline depths per kernel, measured beforehand: nothing is tuned at run time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import torch

from regard.memo import remembered

__all__ = ["TESTED_TRITON", "Config", "config", "generation", "has_tma", "interpreted", "width"]

# Releases of Triton that the Gluon kernels and the private launcher are tested on. On others, portable
# kernels and the public launch API are used, with a warning.
TESTED_TRITON = ("3.6.", "3.7.", "3.8.", "3.9.")

WIDTHS = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Config:
    """Tile shape and schedule of a kernel: queries and keys per tile, warps, pipeline stages."""

    block_q: int
    block_k: int
    warps: int
    stages: int

    @property
    def blocks(self) -> tuple[int, int]:
        return self.block_q, self.block_k

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages}


# By kernel, major compute capability and padded head dim, for 16-bit operands.
TABLE: dict[tuple[str, int, int], Config] = {
    ("forward", 9, 64): Config(128, 64, 4, 3),
    ("forward", 9, 128): Config(128, 128, 8, 3),
    ("forward", 9, 256): Config(128, 64, 8, 2),
    ("rows", 9, 64): Config(128, 128, 8, 3),
    ("rows", 9, 128): Config(128, 128, 8, 3),
    ("rows", 9, 256): Config(128, 64, 8, 2),
    ("columns", 9, 64): Config(64, 128, 4, 3),
    ("columns", 9, 128): Config(64, 128, 4, 4),
    ("columns", 9, 256): Config(64, 64, 4, 2),
    ("diagonals", 9, 64): Config(64, 64, 4, 3),
    ("diagonals", 9, 128): Config(128, 128, 8, 3),
    ("diagonals", 9, 256): Config(64, 64, 4, 2),
    ("heads", 9, 64): Config(64, 128, 4, 3),
    ("heads", 9, 128): Config(64, 128, 4, 2),
    ("heads", 9, 256): Config(64, 64, 4, 2),
    ("top", 9, 64): Config(64, 64, 4, 3),
    ("top", 9, 128): Config(64, 64, 4, 3),
    ("top", 9, 256): Config(64, 64, 4, 2),
    ("keys", 9, 64): Config(64, 64, 4, 2),
    ("keys", 9, 128): Config(64, 64, 4, 2),
    ("keys", 9, 256): Config(32, 32, 4, 1),
    ("queries", 9, 64): Config(64, 64, 4, 3),
    ("queries", 9, 128): Config(128, 64, 8, 3),
    ("queries", 9, 256): Config(64, 32, 8, 1),
    ("decode", 9, 64): Config(16, 64, 4, 3),
    ("decode", 9, 128): Config(16, 64, 4, 3),
    ("decode", 9, 256): Config(16, 64, 4, 2),
}
# For devices without measurements: small enough for any GPU of compute capability 8 or more.
MODEST: dict[str, Config] = {
    "forward": Config(64, 64, 4, 2),
    "rows": Config(64, 64, 4, 2),
    "columns": Config(64, 64, 4, 2),
    "diagonals": Config(64, 64, 4, 2),
    "heads": Config(64, 64, 4, 2),
    "top": Config(64, 64, 4, 2),
    "keys": Config(32, 64, 4, 1),
    "queries": Config(64, 32, 4, 1),
    "decode": Config(16, 64, 4, 2),
}
# Four-byte operands and wide heads need twice the shared memory. The interpreter uses these too.
NARROW: dict[str, Config] = {
    **{name: Config(32, 32, 4, 1) for name in MODEST},
    "decode": Config(16, 32, 4, 1),
}


def width(dim: int) -> int:
    """A head dim rounded up to a power of two, at least 16, as the matrix units need.

    >>> width(80), width(128)
    (128, 128)
    """
    return next(width for width in WIDTHS if dim <= width)


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def has_tma(device: torch.device) -> bool:
    """Whether the device can load tiles by TMA (Hopper and later)."""
    return device.type == "cuda" and generation(device) >= 9


@cache
def generation(device: torch.device) -> int:
    """The major compute capability of a GPU. Cached, because PyTorch's call is slow."""
    return torch.cuda.get_device_capability(device)[0]


def config(kernel: str, device: torch.device, wide: int, dtype: torch.dtype) -> Config:
    """The configuration of a kernel; `wide` is the larger padded head dim.

    >>> config("forward", torch.device("cpu"), 64, torch.float32)
    Config(block_q=32, block_k=32, warps=4, stages=1)
    """
    if device.type != "cuda":
        return NARROW[kernel]
    return _config(kernel, generation(device), wide, dtype.itemsize)


@remembered(128)
def _config(kernel: str, major: int, wide: int, itemsize: int) -> Config:
    if itemsize > 2:
        return NARROW[kernel]
    found = TABLE.get((kernel, major, max(64, wide)))
    return found or (MODEST if wide <= 128 else NARROW)[kernel]
