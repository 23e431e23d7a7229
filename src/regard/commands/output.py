"""What the commands share on the way out: JSON, tables, files, progress."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Progress", "console", "print_json", "progress", "show", "writable"]

Progress = Callable[[int, int], None]


def console(*, errors: bool = False) -> Console:
    """A console that writes plain text into pipes, as wide as tables need there."""
    from rich.console import Console

    made = Console(stderr=errors)
    return made if made.is_terminal else Console(stderr=errors, width=120)


def print_json(value: Any) -> None:
    """One JSON document on standard output, and nothing else."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def show(*parts: Any) -> None:
    """Tables in colour on a terminal, as plain text elsewhere; strings are printed as they are."""
    out = console()
    for part in parts:
        if isinstance(part, str):
            out.print(part, markup=False, highlight=False)
        else:
            out.print(part)


def writable(path: Path | None) -> Path | None:
    """The path, if a file can be written there; asked before long work, not after it."""
    if path is None:
        return None
    folder = path.parent
    reason = (
        "there is no such folder"
        if not folder.is_dir()
        else "it is a folder"
        if path.is_dir()
        else "permission denied"
        if not os.access(path if path.exists() else folder, os.W_OK)
        else None
    )
    if reason is not None:
        raise RegardError(f"{path} cannot be written: {reason}. Name a file in a folder that exists.")
    return path


def progress(title: str, unit: str = "layers") -> AbstractContextManager[Progress]:
    """A bar with the time left on standard error if that is a terminal; returns `step(done, total)`."""
    from regard.models.progress import progress as bar

    return bar(title, unit=unit)
