"""`regard record`: run a model over a text and keep what it attended to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.commands.app import app
from regard.commands.output import noting, print_json, progress
from regard.commands.sources import (
    BUNDLED,
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


@app.command(epilog='Example: regard record bundled "The cat sat on the mat." -o cat.regard')
def record(
    model: ModelArgument = None,
    text: TextArgument = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="The recording to write.")
    ] = Path("recording.regard"),
    chat: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="A chat instead of TEXT: a list of messages with role and content."
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option("--image", metavar="FILE", help="An image, with TEXT or alone. Repeatable."),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(metavar="FILE.wav", help="A sound. TEXT is its transcript, if you have one."),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(metavar="LAYERS", help="Record only these layers, such as 0,3,5. Default: all."),
    ] = None,
    too_long: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How to read a text longer than the context: extend (as a whole up to four times the "
            "context, beyond that in windows), windows, truncate or refuse.",
        ),
    ] = "extend",
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Write keys in fewer bits: bf16 or fp8. The recording says how far weights are from the "
            "exact ones.",
        ),
    ] = None,
    queries: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="The same for queries: bf16 or fp8.")
    ] = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Complete an interrupted recording.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace an existing recording, once the new one is complete."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a model on a text, chat, image or sound, and record its attention."""
    from regard.models import record as record_text
    from regard.models.rounding import Rounding
    from regard.models.target import check_target

    chosen = None if layers is None else _numbers(layers)
    if not output.absolute().parent.is_dir():
        raise RegardError(f"{output} cannot be written: there is no such folder. Name one that exists.")
    check_target(output, resume=resume, overwrite=force)
    Rounding(keys, queries)  # refuses wrong words before the model is loaded
    seen = {"images": list(images or []), "audio": audio}
    beside = bool(images) or audio is not None
    named, said = _asked(model, text, chat, beside)
    loaded = model_named(named, dtype=dtype, device=device, processor=beside)
    how = {"layers": chosen, "store": output, "resume": resume, "overwrite": force, "too_long": too_long}
    how |= {"keys": keys, "queries": queries}
    try:
        with noting(), progress("Recording") as step:
            recording = record_text(loaded, said, **seen, progress=step, **how)
    except KeyboardInterrupt:
        if not output.exists():
            raise
        raise StoppedError(
            f"stopped. What was recorded stays in {output}: complete it with --resume."
        ) from None
    ids = recording.token_ids
    summary = {
        "path": str(output),
        "model": recording.model.name,
        "tokens": (ids["decoder"] if "decoder" in ids else next(iter(ids.values()))).shape[1],
        "layers": len(recording.all_layers),
        "bytes": recording.nbytes,
    }
    if as_json:
        print_json(summary)
        return
    typer.echo(f"Wrote {output}: {recording!r}")
    typer.echo(f"Look at it with: regard view {output}")


def _asked(model: str | None, text: str | None, chat: Path | None, beside: bool) -> tuple[str, Any]:
    """The model's name, and the text or chat for it; with images or a sound there need be no text."""
    from regard.models import load_chat

    if chat is not None:
        if text is not None:
            raise RegardError("TEXT and --chat were both given; leave out one of them.")
        return model or BUNDLED, load_chat(chat)
    if beside:
        return model or BUNDLED, None if text is None else text_named(text)
    named, given = model_and_text(model, text)
    return named, text_named(given)


def _numbers(given: str) -> list[int]:
    try:
        return [int(part) for part in given.split(",")]
    except ValueError:
        raise RegardError(f"--layers is {given!r}; wanted numbers such as 0,3,5.") from None
