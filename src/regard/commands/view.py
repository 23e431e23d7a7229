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
        typer.Argument(metavar="[RECORDINGS]...", help="Recordings, or folders of them; else one is made."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="A model to run; the bundled one if left out.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A text to record first; the bundled story if left out."),
    ] = None,
    book: Annotated[
        bool, typer.Option("--book", help="Read the bundled book, 40,000 tokens: a minute or two, once.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Let other machines in, by a token; only this one if left out.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="A free one if it is taken.")] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, open no browser.")] = False,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where overviews are kept; else the user's cache.")
    ] = None,
    cache_size: Annotated[
        float, typer.Option(metavar="GB", min=0, help="Overviews kept; those used longest ago go first.")
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
