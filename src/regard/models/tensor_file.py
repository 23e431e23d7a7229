"""Writes tensors to a safetensors file at the speed of the disk, and computes its checksum meanwhile.

One thread writes large pieces, another computes the checksum of the same memory; neither holds the GIL.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import RecordingError

__all__ = ["write_tensors"]

# The names of dtypes in the format.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
PIECE = 16 << 20
# Bytes: how PyTorch aligns tensors in memory.
UNIT = 64
# Below this size, computing the checksum is faster than starting a thread.
SMALL = 1 << 20


def write_tensors(tensors: dict[str, Tensor], path: Path) -> tuple[int, str]:
    """Write contiguous tensors and sync to disk; returns the file's size and SHA-256.

    >>> import tempfile
    >>> from safetensors.torch import load_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size, digest = write_tensors({"x": torch.arange(3.0)}, Path(folder) / "x")
    ...     load_file(Path(folder) / "x")["x"]
    tensor([0., 1., 2.])
    """
    names = sorted(tensors, key=lambda name: _order(name, tensors[name]))
    parts = [_header(tensors, names), *(_bytes_of(tensors[name]) for name in names)]
    size = sum(map(len, parts))
    with open(path, "wb", buffering=0) as file:
        if size < SMALL:
            digest = _digest(parts)
            _write(file.fileno(), parts)
        else:
            with ThreadPoolExecutor(1) as pool:
                found = pool.submit(_digest, parts)
                _write(file.fileno(), parts)
                digest = found.result()
        os.fsync(file.fileno())
    return size, digest


def _order(name: str, x: Tensor) -> tuple[bool, int, str]:
    """Whole units first, so that a reader finds them aligned; then wide elements, aligned to their size."""
    return x.nbytes % UNIT != 0, -x.element_size(), name


def _header(tensors: dict[str, Tensor], names: list[str]) -> memoryview:
    """The JSON header, preceded by its length and padded with spaces to a whole unit."""
    about: dict[str, object] = {}
    start = 0
    for name in names:
        x = tensors[name]
        if x.dtype not in DTYPES:
            raise RecordingError(f"{name} is {x.dtype}, which a recording cannot hold.")
        about[name] = {
            "dtype": DTYPES[x.dtype],
            "shape": list(x.shape),
            "data_offsets": [start, start + x.nbytes],
        }
        start += x.nbytes
    said = json.dumps(about, separators=(",", ":")).encode()
    said += b" " * (-(8 + len(said)) % UNIT)
    return memoryview(len(said).to_bytes(8, "little") + said)


def _bytes_of(x: Tensor) -> memoryview:
    return memoryview(x.reshape(-1).view(torch.uint8).numpy().data)


def _pieces(parts: list[memoryview]) -> Iterator[memoryview]:
    for part in parts:
        for start in range(0, len(part), PIECE):
            yield part[start : start + PIECE]


def _digest(parts: list[memoryview]) -> str:
    found = hashlib.sha256()
    for piece in _pieces(parts):
        found.update(piece)
    return found.hexdigest()


def _write(file: int, parts: list[memoryview]) -> None:
    for piece in _pieces(parts):
        while piece:
            piece = piece[os.write(file, piece) :]
