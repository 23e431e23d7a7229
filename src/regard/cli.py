"""The command line: every command, and what happens when one refuses."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from regard._version import __version__
from regard.commands import app
from regard.errors import RegardError, StoppedError

__all__ = ["app", "main"]

# What the parser of options raises. Its module differs between releases of Typer.
USAGE_ERROR: Any = typer.BadParameter.__base__
# The status of a shell command that Ctrl-C ended.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. An error is one line on standard error.

    Exit status 2: the input was refused. Exit status 1: the system failed, for example a full disk. Exit
    status 130: Ctrl-C.
    """
    # A pipe may be set to an encoding without "−", and −0.3 must not come out as ?0.3.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    # The hub's client would report each of its retries; a name that it does not know is one line here.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    try:
        given = None if arguments is None else list(arguments)
        status = app(args=given, prog_name="regard", standalone_mode=False)
    except USAGE_ERROR as error:
        _misused(error)
    except RegardError as error:
        _stop(str(error), INTERRUPTED if isinstance(error, StoppedError) else 2, error)
    except (KeyboardInterrupt, typer.Abort) as error:
        _stop("stopped.", INTERRUPTED, error)
    except (OSError, MemoryError) as error:
        _stop(_reason(error), 1, error)
    if status == INTERRUPTED:
        # Newer releases of Typer turn Ctrl-C into this status and say nothing.
        print("regard: stopped.", file=sys.stderr)
    raise SystemExit(status if isinstance(status, int) else 0)


def _misused(error: Any) -> NoReturn:
    """A wrong option or argument, in one line; no arguments at all print the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise SystemExit(2)
    command = "regard" if error.ctx is None else error.ctx.command_path
    said = error.format_message().rstrip(".")
    _stop(f"{said[:1].lower()}{said[1:]}. See: {command} --help", 2, error)


def _stop(sentence: str, status: int, error: BaseException) -> NoReturn:
    print(f"regard: {' '.join(sentence.split())}", file=sys.stderr)
    raise SystemExit(status) from error


def _reason(error: OSError | MemoryError) -> str:
    """What the system refused, in one sentence."""
    if isinstance(error, MemoryError):
        return "there is not enough memory. Use a shorter text, fewer layers, or a smaller model."
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror or error}."


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
