"""`regard claims`: what textbooks say, measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard._version import __version__
from regard.commands.app import app
from regard.commands.output import print_json, progress, show, writable, written
from regard.commands.sources import JsonOption, model_named
from regard.errors import RegardError

if TYPE_CHECKING:
    from rich.table import Table

    from regard.claims import Entry

__all__ = ["claims"]

COLOURS = {
    "holds": "green",
    "holds with a condition": "cyan",
    "folklore": "yellow",
    "misprint": "red",
    "not measured": "dim",
}


@app.command(epilog="Example: regard claims scale-std temperature --figures figures")
def claims(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="The claims to measure. Default: all."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the claims without measuring them.")] = False,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the figures to this folder, as ID.svg.")
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the ledger as a Markdown page, with its figures beside it."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Measure the claims about trained models on this model. Default: bundled."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure textbook claims about attention. All of them take a few minutes."""
    from regard.claims import find, run
    from regard.claims.timing import machine

    if listing:
        _list(ids, as_json)
        return
    chosen = None if not ids else [find(name).id for name in ids]
    folder = _folder(figures, writable(docs))
    loaded = None if model is None else model_named(model)
    with progress("Measuring claims", "claims") as step:
        given = {} if model is None else {"model": loaded, "name": Path(model).name}
        entries = run(chosen, progress=step, **given)
    if folder is not None:
        _draw(entries, folder)
    if docs is not None and folder is not None:
        from regard.claims.page import page

        with written(docs) as draft:
            draft.write_text(page(entries, _seen_from(docs, folder)), encoding="utf-8")
        typer.echo(f"Wrote {docs}", err=True)
    if as_json:
        print_json(
            {"regard": __version__, "machine": machine(), "claims": [entry.to_dict() for entry in entries]}
        )
    else:
        show(_table(entries), *([_numbers(entries[0])] if len(entries) == 1 else []))


def _list(ids: list[str] | None, as_json: bool) -> None:
    from rich.table import Table

    from regard.claims import CLAIMS, find

    chosen = [find(name) for name in ids] if ids else list(CLAIMS.values())
    if as_json:
        print_json([{"id": one.id, "statement": one.statement, "how": one.how} for one in chosen])
        return
    table = Table("claim", "what textbooks say")
    for one in chosen:
        table.add_row(one.id, one.statement)
    show(table)


def _table(entries: list[Entry]) -> Table:
    from collections import Counter

    from rich.table import Table
    from rich.text import Text

    table = Table("claim", "verdict", "what was measured")
    for entry in entries:
        kind = str(entry.verdict.kind)
        said = Text(entry.claim.statement, style="italic")
        said.append(f"\n{entry.verdict}", style="not italic")
        table.add_row(entry.claim.id, Text(kind, style=COLOURS[kind]), said, end_section=True)
    counts = Counter(str(entry.verdict.kind) for entry in entries)
    seconds = sum(entry.seconds for entry in entries)
    said = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    table.caption = f"{said}; {seconds:.0f} s"
    return table


def _numbers(entry: Entry) -> Table:
    from rich.table import Table

    from regard.claims.page import numbers_of

    table = Table(show_header=False, box=None, title=entry.claim.how, title_justify="left")
    for name, shown in numbers_of(entry).items():
        table.add_row(name, shown)
    return table


def _folder(figures: Path | None, docs: Path | None) -> Path | None:
    """Where figures go, made now: what cannot be written should not be measured first."""
    path = figures if figures is not None else None if docs is None else docs.parent / "images" / "claims"
    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(
            f"{path} cannot be created: {error.strerror}. Name a folder that can be written to."
        ) from error
    if not os.access(path, os.W_OK):
        raise RegardError(f"{path} cannot be written: permission denied. Name another folder.")
    return path


def _draw(entries: list[Entry], folder: Path) -> None:
    from regard.claims.figures import save

    drawn = [entry for entry in entries if entry.measurement.picture is not None]
    for entry in drawn:
        if entry.measurement.picture is not None:
            save(entry.measurement.picture, folder / f"{entry.claim.id}.svg", entry.claim.id)
    typer.echo(f"Wrote {len(drawn)} figures to {folder}", err=True)


def _seen_from(page: Path, folder: Path) -> str:
    """The way from a page to a folder, as a link writes it."""
    return Path(os.path.relpath(folder.resolve(), page.parent.resolve())).as_posix()
