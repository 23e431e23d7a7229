"""`regard atlas`: what every head does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.app import app
from regard.commands.output import print_json, progress, show, writable, written
from regard.commands.sources import JsonOption, RecordingArgument, recording_at
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.atlas import Atlas

__all__ = ["atlas"]

# Heads that a table of pairs shows.
SHOWN = 12


@app.command(epilog="Example: regard atlas --kind induction --csv heads.csv")
def atlas(
    recording: RecordingArgument = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="List only heads of this kind, best first.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one line for each head.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one row for each head.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report, as regard report does.")
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="PAIRS",
            help="List the heads that attend from the first of each pair to the second: brackets, next, or "
            "words such as door:opened,apple:ate.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Classify every head, with the evidence and its statistics."""
    if pairs is not None:
        if any(option is not None for option in (kind, csv, parquet, html)):
            raise RegardError(
                "--pairs prints a table of its own; leave out --kind, --csv, --parquet and --html."
            )
        _paired(recording, pairs, as_json)
        return
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
    elif kind is not None and kind not in made.kinds:
        show(repr(made), _none(made, kind))
    else:
        show(repr(made), made.table(kind))


def _paired(recording: Path | None, pairs: str, as_json: bool) -> None:
    """The heads that look where the pairs say, best first."""
    from dataclasses import asdict

    from rich.table import Table

    from regard.atlas import paired_heads

    named = pairs in ("brackets", "next")
    parted = [one.partition(":") for one in pairs.split(",")]
    words = [(one, other) for one, _, other in parted]
    if not named and any(not one or not other or ":" in other for one, other in words):
        raise RegardError(
            f"--pairs {pairs!r} is not known; wanted brackets, next, or words such as door:opened,apple:ate."
        )
    found = paired_heads(recording_at(recording), pairs if named else words)
    if as_json:
        print_json(
            [
                {"stack": one.stack, "layer": one.layer, "head": one.head, **asdict(one.finding)}
                for one in found
            ]
        )
        return
    table = Table("layer", "head", "score", "evidence")
    for one in found[:SHOWN]:
        score = "–" if one.finding.score is None else f"{one.finding.score:.2f}"
        table.add_row(str(one.layer), str(one.head), score, one.finding.evidence)
    table.caption = (
        f"the first {min(SHOWN, len(found))} of {len(found)} heads; found from {found[0].finding.bar}"
    )
    show(table)


def _none(made: Atlas, kind: str) -> str:
    """That no head is of a kind, and which comes nearest."""
    able = [card for card in made.heads if card.findings[kind].weight is not None]
    said = f"No head is of the kind {kind} on this text."
    if able:
        best = max(able, key=lambda card: card.findings[kind].weight or 0.0)
        found = best.findings[kind]
        where = f"layer {best.layer} head {best.head}, with {found.weight:.2f} of its weight"
        said += f" Nearest is {where}: {found.evidence}."
    if kind == "retrieval":
        said += " Which heads find a sentence that a text asks for: regard needle"
    return said


def _only(made: Atlas, kind: str) -> Atlas:
    from dataclasses import replace

    return replace(made, heads=made.kinds.get(kind, ()))
