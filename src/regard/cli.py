"""The command line: parse, call, print."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from regard._version import __version__
from regard.errors import RegardError
from regard.tracing import EXAMPLES, Trace, example

__all__ = ["app", "main"]

app = typer.Typer(
    help="Exact attention you can look at, at any length.",
    epilog="Example: regard view",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

NEXT = """\
What else there is:
  regard explain --query sat             one token's way through the steps
  regard explain --html steps.html       the steps as a web page
  regard.trace(q, k, v, mask)            the same in Python, on numbers of your own\
"""


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


@app.command(epilog="Example: regard view")
def view() -> None:
    """Look at attention: four tokens under a causal mask, every step with its numbers."""
    _show(example("cat"))
    typer.echo(f"\n{NEXT}")


@app.command(epilog="Example: regard explain --example cat --query sat")
def explain(
    name: Annotated[
        str, typer.Option("--example", metavar="NAME", help=f"Which example: {' or '.join(EXAMPLES)}.")
    ] = "cat",
    query: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Follow one query, by its token or its number.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the steps to a self-contained web page instead."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the steps as JSON instead.")] = False,
) -> None:
    """Explain attention step by step on a small example."""
    trace = example(name)
    chosen = _query(trace, query)
    if as_json and query is not None:
        raise RegardError("--json holds every query; leave out --query, or leave out --json.")
    if html is not None:
        _write(html, trace.to_html(chosen))
        typer.echo(f"Wrote {html}", err=as_json)
    if as_json:
        typer.echo(json.dumps(trace.to_dict(), ensure_ascii=False, allow_nan=False))
    elif html is None:
        _show(trace, chosen)


def _query(trace: Trace, given: str | None) -> int | str | None:
    """A token if there is one of that name, otherwise a number if it is one."""
    if given is None or given in trace.tokens or not given.lstrip("-").isdecimal():
        return given
    return int(given)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RegardError(
            f"{path} cannot be written: {error.strerror}. Name a file in a folder that exists."
        ) from error


def _show(trace: Trace, query: int | str | None = None) -> None:
    """In colour on a terminal, as plain text into a file or a pipe."""
    from rich.console import Console

    if Console().is_terminal:
        trace.show(query)
    else:
        typer.echo(trace.to_text(query))
