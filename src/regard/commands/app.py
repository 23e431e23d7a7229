"""The program that the commands join."""

from __future__ import annotations

import typer

__all__ = ["ASK", "CHECK", "LOOK", "app"]

# Under which heading the help lists a command.
LOOK, ASK, CHECK = "Look", "Ask", "Check"

app = typer.Typer(
    help="Exact attention you can look at, at any length.",
    epilog="Example: regard view",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
