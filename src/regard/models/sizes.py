"""Sizes in human-readable units."""

from __future__ import annotations

__all__ = ["spoken"]


def spoken(size: float) -> str:
    """A number of bytes in bytes, KB, MB or GB.

    >>> spoken(512), spoken(46_912), spoken(3.2e9)
    ('512 bytes', '45.8 KB', '3.0 GB')
    """
    if size < 1024:
        return f"{int(size)} bytes"
    for unit in ("KB", "MB", "GB"):
        size /= 1024
        if size < 1024 or unit == "GB":
            return f"{size:.1f} {unit}"
    return f"{size:.1f} GB"
