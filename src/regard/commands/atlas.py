"""`regard atlas`: what every head does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.app import ASK, app
from regard.commands.output import print_json, progress, show, writable, written
from regard.commands.sources import JsonOption, RecordingArgument, recording_at
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.atlas import Atlas

__all__ = ["atlas"]


@app.command(rich_help_panel=ASK, epilog="Example: regard atlas --kind induction --csv heads.csv")
def atlas(
    recording: RecordingArgument = None,
    kind: Annotated[str | None, typer.Option(help="Only heads of this kind, best first.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one line per head.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one row per head.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, as regard report.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what every head does: its kinds with their evidence, and its statistics."""
    from regard.atlas import KINDS
    from regard.atlas import atlas as survey

    names = [known.name for known in KINDS]
    if kind is not None and kind not in names:
        raise RegardError(f"there is no kind {kind!r}; kinds are: {', '.join(names)}.")
    for path in (csv, parquet, html):
        writable(path)
    found = recording_at(recording)
    with progress("Surveying heads") as step:
        made = survey(found, progress=step)
    for path, write in ((csv, made.to_csv), (parquet, made.to_parquet)):
        if path is not None:
            with written(path) as draft:
                write(draft)
    if html is not None:
        from regard.report import report

        with progress("Writing the page", "parts") as step:
            page = report(found, atlas=made, progress=step)
        with written(html) as draft:
            draft.write_text(page, encoding="utf-8")
    for path in filter(None, (csv, parquet, html)):
        typer.echo(f"Wrote {path}", err=True)
    if as_json:
        print_json((made if kind is None else _only(made, kind)).to_dict())
    else:
        show(repr(made), made.table(kind))


def _only(made: Atlas, kind: str) -> Atlas:
    from dataclasses import replace

    return replace(made, heads=made.kinds.get(kind, ()))
