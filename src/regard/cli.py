"""The command line: every command, and what happens when one refuses."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from regard._version import __version__
from regard.commands import app
from regard.errors import RegardError

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a refusal is one line on standard error and exit status 2."""
    # A pipe may be set to an encoding without "−", and −0.3 must not come out as ?0.3.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="regard")
    except RegardError as error:
        print(f"regard: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from error


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass
