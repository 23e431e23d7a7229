"""`regard check`: is this tutorial right?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import app
from regard.commands.output import print_json, show
from regard.commands.sources import JsonOption
from regard.errors import RegardError

__all__ = ["check"]


@app.command(epilog='Example: regard check "softmax(1, 2, 3) = 0.09, 0.24, 0.67"')
def check(
    source: Annotated[
        str,
        typer.Argument(
            metavar="EXAMPLE",
            help="A file, - for standard input, or the text itself: numbers with their names, as JSON, "
            "Markdown, LaTeX or printed arrays.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Check the printed numbers of a worked example, and name the cause of wrong ones.

    The exit status is 1 if a number is wrong.
    """
    from regard.checking import check as judged

    report = judged(_text(source))
    if as_json:
        print_json(report.to_dict())
    else:
        show(report)
    if not report.ok:
        raise typer.Exit(1)


def _text(source: str) -> str:
    """What a file or standard input holds; else the argument, if it looks like printed numbers."""
    if source == "-":
        return sys.stdin.read()
    path = Path(source)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RegardError(f"{source} is not a text file; give printed numbers in UTF-8.") from error
    except OSError as error:
        # A text is longer than any name of a file may be.
        if len(source) < 200:
            raise RegardError(f"{source} cannot be read: {error.strerror or error}.") from error
    if any(c in source for c in "=:[{\n≈") and any(c.isdigit() for c in source):
        return source
    raise RegardError(f"there is no file {source}; give one with printed numbers, or - for standard input.")
