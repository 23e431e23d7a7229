"""Where commands get a model, a text, a recording; the bundled ones where none is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.commands.output import progress
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.models import LoadedModel, Recording

__all__ = [
    "HeadOption",
    "JsonOption",
    "LayerOption",
    "ModelOption",
    "RecordingArgument",
    "TextArgument",
    "check_head",
    "model_named",
    "recording_at",
    "text_named",
]

RecordingArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RECORDING]", help="A recording; the bundled model's on the bundled text if none."
    ),
]
TextArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEXT]", help="A file, - for standard input, or the text; else the bundled story."
    ),
]
ModelOption = Annotated[
    str, typer.Option("--model", metavar="NAME", help="A folder, a .gguf file, or a name on the hub.")
]
LayerOption = Annotated[int | None, typer.Option("--layer", help="Which layer, from 0.")]
HeadOption = Annotated[int | None, typer.Option("--head", help="Which head, from 0.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]

BUNDLED = "bundled"


def model_named(name: str = BUNDLED, **options: Any) -> LoadedModel:
    """A model and its tokenizer; `bundled` is the one that comes with regard."""
    from regard.models import LoadedModel, bundled, load_model

    return LoadedModel(*bundled()) if name == BUNDLED else load_model(name, **options)


def text_named(text: str | None) -> str:
    """The text given, or the bundled story; an empty text is refused."""
    from regard.models import load_text, sample_text

    found = sample_text() if text is None else load_text(text)
    if not found.strip():
        raise RegardError("the text is empty; give at least one word.")
    return found


def recording_at(path: Path | None) -> Recording:
    """A recording from disk; without a path, the bundled model's on the bundled text, made now."""
    from regard.models import Recording, record

    if path is not None:
        return Recording.open(path)
    loaded = model_named()
    with progress("Recording the bundled text") as step:
        return record(loaded, text_named(None), progress=step)


def check_head(recording: Recording, layer: int, head: int) -> None:
    """Raise unless the recording has this head, and say which it has."""
    heads = recording.maps[layer].shape[1]
    if not 0 <= head < heads:
        raise RegardError(f"layer {layer} has no head {head}; its heads are 0 to {heads - 1}.")
