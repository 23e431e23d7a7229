"""`regard corpus`: an atlas of a whole corpus; and `merge`, `show`, `open` and `export` for what it made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.commands.app import App, app
from regard.commands.help import Group
from regard.commands.output import (
    figure_file,
    print_json,
    progress,
    save_figure,
    show,
    writable,
    written,
)
from regard.commands.sources import DeviceOption, DtypeOption, JsonOption
from regard.errors import CorpusError, RegardError, StoppedError

__all__ = ["corpus"]

AtlasArgument = Annotated[str, typer.Argument(metavar="ATLAS", help="An atlas that regard corpus wrote.")]
RUN = "run"


class _RunUnlessNamed(Group):
    """`regard corpus MODEL TEXTS` runs; a first word that is a command of its own is that command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help",):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


corpus = App(
    cls=_RunUnlessNamed,
    no_args_is_help=True,
    help="Make an atlas of a whole corpus.\n\nregard corpus MODEL TEXTS is short for regard corpus run.",
    rich_markup_mode=None,
    epilog="Example: regard corpus bundled stories.jsonl -o stories.corpus",
)
app.add_typer(corpus, name="corpus")


@corpus.command(RUN, epilog="Example: regard corpus bundled stories.jsonl -o stories.corpus")
def run(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder, a .gguf file, a name on the hub, or bundled.")
    ],
    texts: Annotated[
        Path,
        typer.Argument(
            metavar="TEXTS",
            help="A .jsonl or .parquet file, or a folder of texts, of such files, or of datasets.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="The atlas to write: a path or a URL.")
    ] = "atlas.corpus",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="What runs the workers: local, processes or ray.")
    ] = "local",
    workers: Annotated[int, typer.Option(metavar="N", help="The number of processes or Ray actors.")] = 1,
    gpus: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of a GPU that each Ray actor takes.")
    ] = 0.0,
    part: Annotated[
        str | None, typer.Option("--shard", metavar="K/N", help="Run only part K of N, for an array job.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    field: Annotated[
        str, typer.Option(metavar="NAME", help="The field or column that holds the text.")
    ] = "text",
    context: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Split documents into windows of this many tokens. Default: the model's context.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="The tokens read at once.")] = 4096,
    shard_size: Annotated[
        int, typer.Option("--shard-size", metavar="N", help="The documents in a shard.")
    ] = 64,
    threads: Annotated[int, typer.Option(metavar="N", help="The threads of each worker.")] = 1,
    importance: Annotated[
        int,
        typer.Option(
            metavar="N", help="Also cut each head in every Nth document: one more run for each head. 0: none."
        ),
    ] = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a corpus with a model and classify every head over all texts.

    The result is byte-identical for every engine and number of workers, and after a crash.
    """
    from regard import corpus as package

    settings = package.Settings(field, shard_size, batch, context, threads, importance)
    source = package.ModelSource(model, dtype, device)
    options: dict[str, Any] = {"engine": engine, "workers": workers, "gpus": gpus, "part": part}
    try:
        with progress("Reading the corpus", "documents") as step:
            made = package.run(
                source, texts, output, settings=settings, resume=resume, progress=step, **options
            )
    except KeyboardInterrupt:
        if "://" not in output and not Path(output).exists():
            raise
        raise StoppedError(f"stopped. What was read stays in {output}: continue with --resume.") from None
    if made is None:
        typer.echo(f"Part {part} is done. When all parts are done: regard corpus merge {output}", err=True)
        return
    _summary(made, output, as_json)


@corpus.command(epilog="Example: regard corpus merge stories.corpus")
def merge(atlas: AtlasArgument, as_json: JsonOption = False) -> None:
    """Merge the parts of an array job into one atlas."""
    from regard.corpus import merge as merge_shards

    _summary(merge_shards(atlas), atlas, as_json)


@corpus.command("show", epilog="Example: regard corpus show stories.corpus --head 5.2")
def show_atlas(
    atlas: AtlasArgument,
    head: Annotated[
        str | None,
        typer.Option(metavar="LAYER.HEAD", help="List the texts where this head differs most from its mean."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="List only heads of this kind, largest share first.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the kinds with error bars: .png, .svg or .pdf.")
    ] = None,
    scatter: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the heads by two measures: .png, .svg or .pdf.")
    ] = None,
    axes: Annotated[
        str, typer.Option(metavar="X,Y", help="The measures of --scatter.")
    ] = "mean_distance,relative_entropy",
    as_json: JsonOption = False,
) -> None:
    """Show what every head does over a corpus, or the texts where one head differs most."""
    from regard.corpus import CorpusAtlas
    from regard.corpus.tables import failed_table

    for path in (plot, scatter):
        figure_file(path)
    found = CorpusAtlas.open(atlas)
    names = axes.split(",")
    if len(names) != 2:
        raise RegardError(f"--axes is {axes!r}; wanted two measures, such as mean_distance,sink_share.")
    if plot is not None:
        save_figure(found.figure(), plot)
    if scatter is not None:
        save_figure(found.scatter(*names), scatter)
    for path in filter(None, (plot, scatter)):
        typer.echo(f"Wrote {path}", err=True)
    if as_json:
        print_json(found.of(*_head(head)).to_dict() if head else found.to_dict())
    elif head:
        show(found.firing(*_head(head)))
    else:
        show(found.table(kind), *([failed_table(found.failed)] if found.failed else []), repr(found))


@corpus.command("open", epilog="Example: regard corpus open stories.corpus bundled stories.jsonl --head 5.2")
def open_text(
    atlas: AtlasArgument,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model that read the corpus.")],
    texts: Annotated[Path, typer.Argument(metavar="TEXTS", help="The texts that it read.")],
    head: Annotated[str, typer.Option(metavar="LAYER.HEAD", help="The head to look at.")],
    rank: Annotated[int, typer.Option(metavar="N", help="Which of its texts, as show numbers them.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Keep the recording here.")
    ] = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    no_view: Annotated[
        bool, typer.Option("--no-view", help="Record the text without opening the viewer.")
    ] = False,
) -> None:
    """Record a text where a head differs most from its mean, and open it in the viewer."""
    import tempfile

    from regard.corpus import CorpusAtlas, ModelSource
    from regard.corpus.opening import record_entry

    found = CorpusAtlas.open(atlas)
    layer, number = _head(head)
    made = record_entry(found, ModelSource(model, dtype, device), texts, layer, number, rank)
    folder = output or Path(tempfile.mkdtemp()) / "text.regard"
    made.recording.save(folder)
    place = f"layer {layer}, head {number}, query {made.query}, key {made.key}"
    typer.echo(f"{made.name}: {place}, weight {made.weight:.4f}")
    typer.echo(f"Wrote {folder}", err=True)
    if not no_view:
        from regard.viewer.opening import open_viewer, with_defaults

        open_viewer(with_defaults((folder,), None), None, open_browser=True, say=typer.echo)


@corpus.command(epilog="Example: regard corpus export stories.corpus --parquet heads.parquet")
def export(
    atlas: AtlasArgument,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one row for each head.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--json-folder", metavar="FOLDER", help="Write one JSON file for each head."),
    ] = None,
) -> None:
    """Export an atlas as Parquet or as a folder of JSON."""
    from regard.corpus import CorpusAtlas

    if parquet is None and folder is None:
        raise CorpusError("there is nothing to export; wanted --parquet FILE or --json-folder FOLDER.")
    writable(parquet)
    found = CorpusAtlas.open(atlas)
    if parquet is not None:
        with written(parquet) as draft:
            found.to_parquet(draft)
    if folder is not None:
        found.to_json_folder(folder)
    for path in filter(None, (parquet, folder)):
        typer.echo(f"Wrote {path}", err=True)


def _summary(made: Any, output: str, as_json: bool) -> None:
    if as_json:
        print_json(made.to_dict())
    else:
        from regard.corpus.tables import failed_table

        kinds = ", ".join(f"{len(heads)} {kind}" for kind, heads in made.kinds.items()) or "none"
        failed = [failed_table(made.failed)] if made.failed else []
        show(repr(made), f"Heads of a kind in most documents: {kinds}", *failed)
    if made.documents == 0:
        raise typer.Exit(1)
    if not as_json:
        typer.echo(f"Look at it: regard corpus show {output}", err=True)


def _head(text: str) -> tuple[int, int]:
    layer, _, head = text.partition(".")
    if not (layer.isdigit() and head.isdigit()):
        raise RegardError(f"--head is {text!r}; wanted a layer and a head, such as 5.2.")
    return int(layer), int(head)
