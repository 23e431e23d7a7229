"""`regard advise`: which sparse mask would keep nearly all of each head's attention?"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.commands.app import app
from regard.commands.output import print_json, progress, show
from regard.commands.sources import JsonOption, LayerOption, RecordingArgument, recording_at

__all__ = ["advise"]


@app.command(epilog="Example: regard advise --share 0.95 --heads")
def advise(
    recording: RecordingArgument = None,
    share: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of each head's attention that a mask must keep.")
    ] = 0.99,
    layer: LayerOption = None,
    heads: Annotated[bool, typer.Option("--heads", help="List heads too, not only layers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the sparsest mask that keeps a given share of each head's attention."""
    from regard.atlas import advise as advised

    made = recording_at(recording)
    with progress("Trying masks") as step:
        found = advised(made, share, layers=None if layer is None else [layer], progress=step)
    print_json(found.to_dict()) if as_json else show(found.table(heads))
