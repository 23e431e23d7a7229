"""Errors for damaged files: any exception while reading a file becomes an error that names it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import RegardError

__all__ = ["believing"]


@contextmanager
def believing(path: str | Path, kind: type[RegardError], remedy: str) -> Generator[None]:
    """Within the block, turn any exception from reading a file into an error of class `kind`.

    >>> from regard.errors import RecordingError
    >>> with believing("x.json", RecordingError, "Record again."):
    ...     {}["layers"]
    Traceback (most recent call last):
    regard.errors.RecordingError: x.json is damaged and cannot be read (KeyError: 'layers'). Record again.
    """
    try:
        yield
    except kind:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(".")
        raise kind(f"{path} is damaged and cannot be read ({said}). {remedy}") from error
