"""The warning when an untested release of Triton turns a fast path off."""

from __future__ import annotations

import warnings

from regard.engine.triton.configs import TESTED_TRITON

__all__ = ["warn_untested"]

_warned: set[str] = set()


def warn_untested(version: str, slower: str) -> None:
    """Warn, once per process and fast path, that a release of Triton is untested and what is slower."""
    if slower in _warned:
        return
    _warned.add(slower)
    tested = ", ".join(release + "x" for release in TESTED_TRITON)
    text = f"Triton {version} is untested with this release of regard: {slower}. Tested: {tested}."
    warnings.warn(text, RuntimeWarning, stacklevel=3)
