"""Writes tensors to a safetensors file at the speed of the disk, and computes its checksum meanwhile.

The file is cut into pieces. One thread copies them into buffers, from a GPU on a stream of its own, another
computes the checksum, a third writes; none of them holds the GIL. Large files are written past the page cache
where the system can: copying into it takes longer than many disks do.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from errno import EINVAL
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.errors import RecordingError
from regard.models.buffers import PIECE, Buffers

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
# Bytes: how PyTorch aligns tensors in memory.
UNIT = 64
# Below this size, computing the checksum is faster than starting a thread.
SMALL = 1 << 20
# From this size on, files are written past the page cache.
LARGE = 64 << 20
# How many buffers of one file are being filled, checksummed or written.
DEPTH = 3
# Linux has it; 0 elsewhere.
O_DIRECT: int = getattr(os, "O_DIRECT", 0)


def write_tensors(tensors: dict[str, Tensor], path: Path, buffers: Buffers | None = None) -> tuple[int, str]:
    """Write contiguous tensors and sync to disk; returns the file's size and SHA-256.

    Tensors of a GPU are read on a stream of their own: what computes them must have finished.

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
    found = hashlib.sha256()
    file = _opened(path, size)
    try:
        if size < SMALL:
            piece = _filled(torch.empty(size, dtype=torch.uint8), parts, {}).numpy().data
            found.update(piece)
            _write(file, piece)
        else:
            _stream(parts, file, found, buffers or Buffers())
        os.fsync(file)
    finally:
        os.close(file)
    return size, found.hexdigest()


def _stream(parts: list[Tensor], file: int, found: hashlib._Hash, buffers: Buffers) -> None:
    """Copy, checksum and write the parts, each in a thread."""
    devices = {part.device for part in parts if part.is_cuda}
    streams = {device: torch.cuda.Stream(device) for device in devices}
    under_way: deque[tuple[Tensor, Future[None], Future[None]]] = deque()

    def free() -> Tensor:
        if len(under_way) < DEPTH:
            return buffers.take(bool(devices))
        buffer, summed, written = under_way.popleft()
        summed.result()
        written.result()
        return buffer

    with ThreadPoolExecutor(1) as checksum, ThreadPoolExecutor(1) as disk:
        for slices in _pieces(parts):
            buffer = free()
            piece = _filled(buffer, slices, streams).numpy().data
            under_way.append((buffer, checksum.submit(found.update, piece), disk.submit(_write, file, piece)))
        while under_way:
            buffer, summed, written = under_way.popleft()
            summed.result()
            written.result()
            buffers.give(buffer)


def _pieces(parts: list[Tensor]) -> Iterator[list[Tensor]]:
    """The parts one after another, cut into pieces that fill a buffer."""
    piece: list[Tensor] = []
    left = PIECE
    for part in parts:
        start = 0
        while start < len(part):
            piece.append(part[start : start + left])
            start += len(piece[-1])
            left -= len(piece[-1])
            if left == 0:
                yield piece
                piece, left = [], PIECE
    if piece:
        yield piece


def _filled(buffer: Tensor, slices: list[Tensor], streams: dict[torch.device, torch.cuda.Stream]) -> Tensor:
    """Copy the slices into a buffer; returns the part of it that they fill."""
    stop = 0
    for x in slices:
        start, stop = stop, stop + len(x)
        if x.device in streams:
            with torch.cuda.stream(streams[x.device]):
                buffer[start:stop].copy_(x, non_blocking=True)
        elif x.device.type == "cpu":
            # NumPy copies in this thread; PyTorch would start a team of threads for it.
            np.copyto(buffer[start:stop].numpy(), x.numpy())
        else:
            buffer[start:stop].copy_(x)
    for stream in streams.values():
        stream.synchronize()
    return buffer[:stop]


def _order(name: str, x: Tensor) -> tuple[bool, int, str]:
    """Whole units first, so that a reader finds them aligned; then wide elements, aligned to their size."""
    return x.nbytes % UNIT != 0, -x.element_size(), name


def _header(tensors: dict[str, Tensor], names: list[str]) -> Tensor:
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
    return torch.frombuffer(bytearray(len(said).to_bytes(8, "little") + said), dtype=torch.uint8)


def _bytes_of(x: Tensor) -> Tensor:
    return x.detach().reshape(-1).view(torch.uint8)


def _opened(path: Path, size: int) -> int:
    """A new file, open for writing; past the page cache if it is large and the file system can."""
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    if O_DIRECT and size >= LARGE:
        try:
            return os.open(path, flags | O_DIRECT, 0o666)
        except OSError as error:
            if error.errno != EINVAL:
                raise
    return os.open(path, flags, 0o666)


def _write(file: int, piece: memoryview) -> None:
    while piece:
        try:
            piece = piece[os.write(file, piece) :]
        except OSError as error:
            if error.errno != EINVAL or not _cached(file):
                raise


def _cached(file: int) -> bool:
    """Write the rest of a file through the page cache; False if that is the case already.

    Past it goes only what is aligned, and the end of a file seldom is.
    """
    if not O_DIRECT:
        return False
    from fcntl import F_GETFL, F_SETFL, fcntl

    flags = fcntl(file, F_GETFL)
    fcntl(file, F_SETFL, flags & ~O_DIRECT)
    return bool(flags & O_DIRECT)
