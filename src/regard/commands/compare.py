"""`regard compare`: two recordings side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.app import app
from regard.commands.output import print_json, progress, show
from regard.commands.sources import JsonOption, recording_at
from regard.errors import RegardError

if TYPE_CHECKING:
    pass

__all__ = ["compare"]


@app.command(epilog="Example: regard compare a.regard b.regard")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A recording.")],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="Another recording, of another text or another model.")
    ],
    top: Annotated[int, typer.Option(metavar="N", help="The number of heads to list.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Compare two recordings, of two texts or of two models.

    Recordings of one model are compared head by head, other recordings by kinds and means.
    """
    from regard.atlas import atlas
    from regard.atlas import compare as compared

    if top < 1:
        raise RegardError(f"--top is {top}; wanted at least 1.")
    recordings = recording_at(first), recording_at(second)
    made = []
    for path, recording in zip((first, second), recordings, strict=True):
        with progress(f"Surveying {path.name}") as step:
            made.append(atlas(recording, progress=step))
    found = compared(*made, names=(first.name, second.name))
    if as_json:
        print_json(found.to_dict())
    else:
        show(found.kinds_table(), *([found.heads_table(top)] if found.changes else []), found.summary())
