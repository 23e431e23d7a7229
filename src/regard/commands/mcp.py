"""`regard mcp`: a server for language-model agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import LOOK, app
from regard.commands.sources import BUNDLED
from regard.errors import RegardError

__all__ = ["mcp"]


@app.command(rich_help_panel=LOOK, epilog="Example: regard mcp alice.regard")
def mcp(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RECORDINGS]...", help="Recordings that agents may read."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="The model that reads texts. Default: the bundled model.")
    ] = BUNDLED,
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Let agents save recordings in this folder.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve HTTP on this machine only. Default: stdin and stdout."),
    ] = None,
) -> None:
    """Serve language-model agents (Model Context Protocol): record, atlas, cells, knock-outs, check, cost.

    Read-only, unless --write names a folder.
    """
    if write is not None and not write.is_dir():
        raise RegardError(f"{write} is no folder; name one that exists.")
    from regard.mcp import serve
    from regard.mcp.desk import Desk

    if model != BUNDLED:
        from regard.models.loading import located

        located(model)
    serve(Desk(recordings or (), model, write), port)
