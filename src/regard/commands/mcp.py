"""`regard mcp`: a server for language-model agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import app
from regard.commands.sources import BUNDLED
from regard.errors import RegardError

__all__ = ["mcp"]


@app.command(epilog="Example: regard mcp alice.regard")
def mcp(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RECORDINGS", help="The recordings that agents may read."),
    ] = None,
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model that agents may run.")] = BUNDLED,
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Let agents save recordings in this folder.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65535,
            help="Serve HTTP on this port, to this machine only. Default: stdin and stdout.",
        ),
    ] = None,
) -> None:
    """Serve recordings and measurements to language-model agents (Model Context Protocol).

    Read-only, unless --write names a folder.
    """
    if write is not None and not write.is_dir():
        raise RegardError(f"{write} is not a folder; name one that exists.")
    from regard.mcp import serve
    from regard.mcp.desk import Desk

    if model != BUNDLED:
        from regard.places import located

        located(model)
    serve(Desk(recordings or (), model, write), port)
