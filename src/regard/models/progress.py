"""A progress bar for long runs in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["progress"]


@contextmanager
def progress(
    label: str, *, unit: str = "layers", file: TextIO | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Show progress and the remaining time; returns a function for any `progress=` argument.

    The bar is written to stderr, or to `file`, but only if that is a terminal, so that logs stay readable.

    >>> import io
    >>> with progress("recording", file=io.StringIO()) as tell:
    ...     tell(3, 8)
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr if file is None else file)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    left = TimeRemainingColumn(elapsed_when_finished=True)
    with Progress(*columns, left, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield tell
