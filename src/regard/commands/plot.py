"""`regard plot`: one head's map as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.app import app
from regard.commands.output import figure_file, print_json, save_figure
from regard.commands.sources import HeadOption, JsonOption, RecordingArgument, head_named, recording_at
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.models import Recording

__all__ = ["figure_of", "plot"]

BLOCKS = ("max", "mean")
# Up to here each cell is drawn; beyond, blocks of cells.
DRAWN, ANNOTATED, INSET = 64, 16, 32


@app.command(epilog="Example: regard plot --head 3.2 --output map.png")
def plot(
    recording: RecordingArgument = None,
    layer: Annotated[
        int | None,
        typer.Option(metavar="N", help="The layer, from 0. Default: the first that was recorded."),
    ] = None,
    head: HeadOption = None,
    queries: Annotated[
        str | None, typer.Option(metavar="A:B", help="Draw only these queries. Default: all.")
    ] = None,
    keys: Annotated[
        str | None, typer.Option(metavar="A:B", help="Draw only these keys. Default: all.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY,KEY", help="The cell to enlarge in a long map. Default: the largest weight."
        ),
    ] = None,
    how: Annotated[
        str, typer.Option(metavar="HOW", help="What a block of a long map shows: max or mean.")
    ] = "max",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The figure to write: .png, .svg or .pdf.")
    ] = Path("map.png"),
    as_json: JsonOption = False,
) -> None:
    """Draw the map of one head.

    A short map is drawn cell by cell; a long one is pooled, with one part enlarged.
    """
    figure_file(output)
    if how not in BLOCKS:
        raise RegardError(f"--how is {how!r}; wanted max or mean.")
    layer, number = head_named(head, layer)
    found = recording_at(recording)
    layer, number = next(iter(found.layers), 0) if layer is None else layer, number or 0
    found.layers[layer].check_head(number)
    _, _, q, k = found.maps[layer].shape
    rows, columns = _range("--queries", queries, q), _range("--keys", keys, k)
    save_figure(figure_of(found, layer, number, rows, columns, how=how, at=_place(at, q, k)), output)
    if as_json:
        print_json({"path": str(output), "layer": layer, "head": number, "queries": q, "keys": k})
    else:
        typer.echo(f"Wrote {output}")


def figure_of(
    recording: Recording,
    layer: int,
    head: int,
    rows: range,
    columns: range,
    *,
    how: str = "max",
    at: tuple[int, int] | None = None,
) -> Figure:
    """The figure of one head: a textbook heatmap where it is short, an overview with an inset where not."""
    from regard.plots import heatmap
    from regard.report.pictures import block_of, labels_of, zoomed

    title, labels = f"layer {layer}, head {head}", labels_of(recording)
    seen = recording.maps[layer]
    if max(len(rows), len(columns)) <= DRAWN:
        weights = seen[0, head, rows, columns]
        hidden = seen.scores((0, head, rows, columns)).isneginf()
        annotate = max(weights.shape) <= ANNOTATED
        named = labels or []
        sides = named[rows.start : rows.stop] or None, named[columns.start : columns.stop] or None
        return heatmap(weights, *sides, annotate=annotate, hidden=hidden, title=title)
    if (len(rows), len(columns)) != tuple(seen.shape[2:]):
        raise RegardError(
            f"{len(rows)} x {len(columns)} cells are too many to draw one by one (at most {DRAWN} each way), "
            "and only the whole map can be pooled. Leave out --queries and --keys, and zoom in with --at."
        )
    size = block_of(seen)
    pooled = seen.pooled(size, how)[0, head]
    place = at or _heaviest(pooled, size, (len(rows), len(columns)))
    return zoomed(seen, head, pooled, place, INSET, labels=labels, title=title, how=how)


def _heaviest(pooled, size: int, lengths: tuple[int, int]) -> tuple[int, int]:
    """The middle of the heaviest block that is neither sink nor diagonal: those hold nothing new."""
    import torch

    rows, columns = (torch.arange(n) for n in pooled.shape)
    shift = lengths[1] - lengths[0]
    near = (rows[:, None] * size + shift - columns * size).abs() < INSET
    apart = pooled.masked_fill(near | (columns < 1 + INSET // size), -1.0)
    index = int((apart if bool((apart > 0).any()) else pooled).argmax())
    return index // pooled.shape[1] * size + size // 2, index % pooled.shape[1] * size + size // 2


def _range(option: str, given: str | None, length: int) -> range:
    """A range such as 10:40 as Python reads slices; refused where it lies outside."""
    if given is None:
        return range(length)
    try:
        start, stop = (int(part) if part else None for part in given.split(":"))
    except ValueError:
        raise RegardError(f"{option} is {given!r}; wanted a range such as 10:40.") from None
    found = range(length)[start:stop]
    if not len(found) or (stop is not None and stop > length):
        raise RegardError(f"{option} is {given!r}; the recording has 0:{length}.")
    return found


def _place(given: str | None, q: int, k: int) -> tuple[int, int] | None:
    if given is None:
        return None
    try:
        query, key = (int(part) for part in given.split(","))
    except ValueError:
        raise RegardError(f"--at is {given!r}; wanted a query and a key such as 1000,980.") from None
    if not (0 <= query < q and 0 <= key < k):
        raise RegardError(f"--at is {given!r}; queries are 0 to {q - 1} and keys 0 to {k - 1}.")
    return query, key
