"""Tokens on disk: uint16, little endian, compressed with xz, which halves what a training machine is sent."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

__all__ = ["load_tokens", "save_tokens"]

# Tokens are two bytes wide; the compressor models the two apart when told so.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 1, "pb": 1, "dict_size": 1 << 26}]


def save_tokens(path: Path, tokens: np.ndarray) -> int:
    """Write tokens; returns the size of the file in bytes."""
    packed = lzma.compress(tokens.astype("<u2").tobytes(), format=lzma.FORMAT_XZ, filters=_FILTERS)
    path.write_bytes(packed)
    return len(packed)


def load_tokens(path: Path) -> np.ndarray:
    """Read what `save_tokens` wrote."""
    return np.frombuffer(lzma.decompress(path.read_bytes()), dtype="<u2").astype(np.uint16)
