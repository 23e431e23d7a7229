"""Where commands get a model, a text, a recording; the bundled ones where none is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.output import progress
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.models import LoadedModel, Recording

__all__ = [
    "BUNDLED",
    "DeviceOption",
    "DtypeOption",
    "HeadOption",
    "JsonOption",
    "LayerOption",
    "ModelArgument",
    "ModelOption",
    "RecordingArgument",
    "TextArgument",
    "head_named",
    "model_and_text",
    "model_named",
    "recording_at",
    "text_named",
]

RecordingArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RECORDING", help="A recording. Default: the bundled model reads the bundled story."
    ),
]
ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL", help="A folder, a .gguf file, a name on the hub, or bundled. Default: bundled."
    ),
]
TextArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT", help="A file, - for standard input, or the text itself. Default: the bundled story."
    ),
]
# The order of arguments is MODEL TEXT; this option is from when it was not.
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", hidden=True, help="The same as the first argument.")
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="TYPE", help="The data type of the weights, such as bfloat16. Default: as saved."
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", help="cpu, cuda, or auto: a GPU if there is one. Default: cpu."
    ),
]
LayerOption = Annotated[int | None, typer.Option("--layer", metavar="N", help="The layer, from 0.")]
HeadOption = Annotated[
    str | None, typer.Option("--head", metavar="HEAD", help="The head, from 0; with its layer, such as 6.3.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

BUNDLED = "bundled"
# What the name of a model on the hub looks like, with its owner; and a name or a word without one.
HUB = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
WORD = re.compile(r"[\w.-]+", re.ASCII)
TEXTS = (".txt", ".md", ".json", ".html")


def model_and_text(
    first: str | None, second: str | None, option: str | None = None
) -> tuple[str, str | None]:
    """The names of a model and a text from the arguments MODEL TEXT, either of which may be left out.

    One argument is the model if it can only be one, otherwise the text. A single word may be either: refused.
    """
    if option is not None:
        if second is not None:
            raise RegardError(f"two models are named: {first} and --model {option}. Leave out one of them.")
        return option, first
    if second is not None or first is None:
        return first or BUNDLED, second
    if _is_model(first):
        return first, None
    if WORD.fullmatch(first) and not Path(first).suffix and not Path(first).exists():
        raise RegardError(
            f"{first!r} may be a model or a text. Give both, such as {first} story.txt, or {BUNDLED} {first}."
        )
    return BUNDLED, first


def _is_model(name: str) -> bool:
    path = Path(name)
    if name == BUNDLED or path.suffix == ".gguf":
        return True
    try:
        if path.exists():
            return path.is_dir()
    except OSError:
        return False  # a text, too long for a name
    return HUB.fullmatch(name) is not None and path.suffix not in TEXTS


def head_named(head: str | None, layer: int | None) -> tuple[int | None, int | None]:
    """The layer and the head that `--layer 6 --head 3` or `--head 6.3` name; None where nothing is said.

    >>> head_named("6.3", None), head_named("3", 6), head_named(None, 6)
    ((6, 3), (6, 3), (6, None))
    """
    if head is None:
        return layer, None
    before, dot, number = head.rpartition(".")
    if not number.isdecimal() or (dot and not before.isdecimal()):
        raise RegardError(f"--head is {head!r}; wanted a head such as 3, or with its layer, such as 6.3.")
    if dot and layer not in (None, int(before)):
        raise RegardError(f"--layer {layer} and --head {head} name two layers. Leave out --layer.")
    return int(before) if dot else layer, int(number)


def model_named(
    name: str = BUNDLED, *, dtype: str | None = None, device: str | None = None, processor: bool = False
) -> LoadedModel:
    """A model and its tokenizer, or its processor; `bundled` is the one that comes with regard."""
    from regard.models import load_model

    return load_model(name, dtype=dtype, device=device, processor=processor)


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
