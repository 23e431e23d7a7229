"""`regard record`: run a model over a text and keep what it attended to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import LOOK, app
from regard.commands.output import noting, print_json, progress
from regard.commands.sources import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    TextArgument,
    model_and_text,
    model_named,
    text_named,
)
from regard.errors import RegardError, StoppedError

__all__ = ["record"]


@app.command(
    rich_help_panel=LOOK, epilog='Example: regard record bundled "The cat sat on the mat." -o cat.regard'
)
def record(
    model: ModelArgument = None,
    text: TextArgument = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write the recording.")
    ] = Path("recording.regard"),
    layers: Annotated[
        str | None, typer.Option(metavar="0,3,5", help="Only these layers; all of them if left out.")
    ] = None,
    too_long: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="A text longer than the context: extend (whole, up to four times the context, else in "
            "windows), windows, truncate, or refuse.",
        ),
    ] = "extend",
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete a recording that was cut short.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace the recording that is there, once the new one is complete."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a model over a text and write down its attention: maps, statistics, tokens."""
    from regard.models import record as record_text
    from regard.models.writer import check_target

    chosen = None if layers is None else _numbers(layers)
    if not output.absolute().parent.is_dir():
        raise RegardError(f"{output} cannot be written: there is no such folder. Name one that exists.")
    check_target(output, resume=resume, overwrite=force)
    named, given = model_and_text(model, text)
    said = text_named(given)
    loaded = model_named(named, dtype=dtype, device=device)
    how = {"layers": chosen, "store": output, "resume": resume, "overwrite": force, "too_long": too_long}
    try:
        with noting(), progress("Recording") as step:
            recording = record_text(loaded, said, progress=step, **how)
    except KeyboardInterrupt:
        if not output.exists():
            raise
        raise StoppedError(
            f"stopped. What was recorded stays in {output}: complete it with --resume."
        ) from None
    summary = {
        "path": str(output),
        "model": recording.model.name,
        "tokens": next(iter(recording.token_ids.values())).shape[1],
        "layers": len(recording.all_layers),
        "bytes": recording.nbytes,
    }
    if as_json:
        print_json(summary)
        return
    typer.echo(f"Wrote {output}: {recording!r}")
    typer.echo(f"Look at it with: regard view {output}")


def _numbers(given: str) -> list[int]:
    try:
        return [int(part) for part in given.split(",")]
    except ValueError:
        raise RegardError(f"--layers is {given!r}; wanted numbers such as 0,3,5.") from None
