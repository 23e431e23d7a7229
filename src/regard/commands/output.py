"""What the commands share on the way out: JSON, tables, files, progress."""

from __future__ import annotations

import json
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

__all__ = [
    "Progress",
    "console",
    "figure_file",
    "noting",
    "print_json",
    "progress",
    "save_figure",
    "show",
    "writable",
    "written",
]

FORMATS = (".png", ".svg", ".pdf")

Progress = Callable[[int, int], None]


def console(*, errors: bool = False) -> Console:
    """A console that writes plain text into pipes, as wide as tables need there."""
    from rich.console import Console

    # Without emoji: "g.py:a: 1 finding" is a file and a name, and :a: the code of a picture.
    made = Console(stderr=errors, emoji=False)
    return made if made.is_terminal else Console(stderr=errors, width=120, emoji=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output, and nothing else."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def show(*parts: Any) -> None:
    """Tables in colour on a terminal, as plain text elsewhere; strings are printed as they are.

    A table that is wider than the terminal is printed as lines.
    """
    from rich.console import Group
    from rich.table import Table

    from regard.commands.narrow import as_lines, width_of

    out = console()
    single = [one for part in parts for one in (part.renderables if isinstance(part, Group) else [part])]
    for part in single:
        if isinstance(part, Table) and width_of(part) > out.width:
            out.print(as_lines(part, out.width), markup=False, highlight=False)
        elif isinstance(part, str):
            out.print(part, markup=False, highlight=False)
        else:
            out.print(part)


@contextmanager
def noting() -> Iterator[None]:
    """Print warnings as notes, each once, on standard error: a command's reader did not write the code."""
    said: set[str] = set()

    def note(message: Warning | str, *rest: Any, **named: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            typer.echo(f"note: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = note
        yield


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


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A draft beside the path, which replaces the file when the block ends without an error.

    So a full disk or Ctrl-C leaves the old file, or none, but never half of one.
    """
    if path.exists() and not path.is_file():
        # A pipe or a device is written to, not replaced.
        yield path
        return
    target = path.resolve()
    draft = target.with_name(f".{target.stem}-{secrets.token_hex(4)}{target.suffix}")
    try:
        yield draft
        draft.replace(target)
    except OSError as error:
        # A full disk names no file.
        if error.filename in (None, str(draft)):
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)


def figure_file(path: Path | None) -> Path | None:
    """The path, if a figure can be written there, in a format that is drawn."""
    if path is not None and path.suffix not in FORMATS:
        raise RegardError(f"{path} has the ending {path.suffix!r}; wanted one of {', '.join(FORMATS)}.")
    return writable(path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; a crash leaves the old file or the new one."""
    with written(path) as draft:
        figure.savefig(draft)


def progress(title: str, unit: str = "layers") -> AbstractContextManager[Progress]:
    """A bar with the time left on standard error if that is a terminal; returns `step(done, total)`."""
    from regard.models.progress import progress as bar

    return bar(title, unit=unit)
