"""The viewer's page: TypeScript in frontend/, built with Vite into src/regard/viewer/static."""

from __future__ import annotations

from pathlib import Path

__all__ = ["build", "requirements"]


def requirements() -> list[str]:
    """Packages the build needs from PyPI on this machine."""
    return []


def build(root: Path) -> list[Path]:
    """Build the page; returns the files that belong into the wheel."""
    return []
