"""`regard view`: look at attention in the browser."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import LOOK, app

__all__ = ["view"]


@app.command(rich_help_panel=LOOK, epilog="Example: regard view alice.regard")
def view(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RECORDINGS]...",
            help="Recordings, or folders of them. Default: record the bundled story.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="The model to run. Default: the bundled model.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The text to record first. Default: the bundled story."),
    ] = None,
    book: Annotated[
        bool, typer.Option("--book", help="Record the bundled book of 40,000 tokens: a minute or two, once.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(help="Address to serve other machines on, with a token. Default: this machine only."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port; another one if it is taken.")
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, do not open a browser.")
    ] = False,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where overviews are kept. Default: the user's cache.")
    ] = None,
    cache_size: Annotated[
        float,
        typer.Option(
            metavar="GB", min=0, help="Size of that folder; the least recently used overviews are deleted."
        ),
    ] = 8,
) -> None:
    """Look at attention in the browser: a map of the whole text, down to one weight."""
    from regard.viewer.opening import open_viewer, with_defaults

    size = int(cache_size * 2**30)
    settings = with_defaults(recordings or (), model, host=host, port=port, cache=cache, cache_bytes=size)
    open_viewer(settings, text, book=book, open_browser=not no_open, say=typer.echo)
    _leave()


def _leave() -> None:
    """End now if Ctrl-C came while a model is loading: half-loaded libraries abort at exit."""
    from regard.viewer.serving import MAKING

    if any(thread.name == MAKING for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
