"""The native kernels: C in src/regard/engine/native, compiled beside their source."""

from __future__ import annotations

from pathlib import Path

__all__ = ["build", "requirements", "wheel_tag"]


def requirements() -> list[str]:
    """Packages the build needs from PyPI on this machine."""
    return []


def build(root: Path) -> list[Path]:
    """Compile the kernels; returns the files that belong into the wheel."""
    return []


def wheel_tag() -> str | None:
    """The platform the wheel is for; None where it holds Python only."""
    return None
