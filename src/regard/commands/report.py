"""`regard report`: one page about a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import app
from regard.commands.output import print_json, progress, writable, written
from regard.commands.sources import JsonOption, RecordingArgument, recording_at
from regard.errors import RegardError

__all__ = ["report"]


@app.command(epilog="Example: regard report --output report.html --figures figures")
def report(
    recording: RecordingArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write the figures to this folder, as PNG and SVG."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report about a recording, as one HTML file that opens from disk."""
    from regard.report import report as write

    writable(output)
    if figures is not None:
        try:
            figures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RegardError(f"{figures} cannot be made: {error.strerror}. Name another folder.") from error
    found = recording_at(recording)
    with progress("Writing the report", "parts") as step:
        page = write(found, figures=figures, progress=step)
    with written(output) as draft:
        draft.write_text(page, encoding="utf-8")
    if as_json:
        print_json({"path": str(output), "bytes": len(page.encode())})
    else:
        typer.echo(f"Wrote {output} ({len(page.encode()) / 1e6:.1f} MB)")
