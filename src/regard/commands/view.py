"""`regard view`: look at attention in the browser."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import app

__all__ = ["view"]


@app.command(epilog="Example: regard view alice.regard")
def view(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RECORDINGS",
            help="Recordings, or folders of recordings. Default: record the bundled story.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model to run: a folder, a file or a name. Default: bundled."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The text to record. Default: the bundled story."),
    ] = None,
    book: Annotated[
        bool,
        typer.Option(
            "--book", help="Record the bundled book of 40,000 tokens. It takes a few minutes, once."
        ),
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve other machines on this address; they need the token. Default: this machine only.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=1, max=65535, help="The port. If it is taken, another one is used."),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address instead of opening a browser.")
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The cache for overviews. Default: the user's cache folder."),
    ] = None,
    cache_size: Annotated[
        float,
        typer.Option(
            metavar="GB",
            min=0,
            help="The largest size of the cache; the least recently used overviews go first.",
        ),
    ] = 8,
) -> None:
    """Open the viewer in the browser: the map of a whole text, down to one weight."""
    from regard.viewer.opening import open_viewer, with_defaults

    size = int(cache_size * 2**30)
    settings = with_defaults(recordings or (), model, host=host, port=port, cache=cache, cache_bytes=size)
    open_viewer(settings, text, book=book, open_browser=not no_open, say=typer.echo)
    _leave()


def _leave() -> None:
    """End now if Ctrl-C came while a model is loading: half-loaded libraries abort at exit."""
    from regard.viewer.starting import MAKING

    if any(thread.name == MAKING for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
