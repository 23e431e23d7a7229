"""`regard needle`: can the model find a sentence in a long text, and which heads look at it?"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.commands.app import app
from regard.commands.output import print_json, progress, show
from regard.commands.sources import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    ModelOption,
    TextArgument,
    model_and_text,
    model_named,
    text_named,
)
from regard.errors import RegardError

__all__ = ["needle"]


@app.command(epilog="Example: regard needle --depths 3 --length 8000")
def needle(
    model: ModelArgument = None,
    text: TextArgument = None,
    needle: Annotated[
        str | None, typer.Option(metavar="SENTENCE", help="The sentence to hide in the text.")
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="The beginning of that sentence, which the text ends with."),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="The expected answer. Default: the rest of the sentence."),
    ] = None,
    depths: Annotated[
        int, typer.Option(metavar="N", help="The number of depths, from the start to the end of the text.")
    ] = 11,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Read this many tokens; beyond 2,000, from the bundled book. Default: all."
        ),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="LENGTHS", help="Test several lengths, such as 150,300,600.")
    ] = None,
    option: ModelOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hide a sentence in a long text, ask for it, and find the heads that retrieve it."""
    from regard.atlas import needle as search
    from regard.atlas import needle_grid

    if (needle is None) != (question is None):
        raise RegardError("give both --needle and --question: the question is the beginning of the needle.")
    words = {"needle": needle, "question": question, "answer": answer}
    given = {name: value for name, value in words.items() if value is not None}
    sizes = _sizes(lengths, length)
    named, hidden_in = model_and_text(model, text, option)
    haystack = None if hidden_in is None else text_named(hidden_in)
    loaded = model_named(named, dtype=dtype, device=device)
    if sizes:
        with progress("Hiding the needle", "lengths") as step:
            grid = needle_grid(
                loaded.model,
                loaded.tokenizer,
                sizes,
                haystack=haystack,
                depths=depths,
                progress=step,
                **given,
            )
        print_json(grid.to_dict()) if as_json else show(grid.table())
        return
    with progress("Hiding the needle", "depths") as step:
        found = search(
            loaded.model,
            loaded.tokenizer,
            haystack=haystack,
            depths=depths,
            length=length,
            progress=step,
            **given,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        show(found.table())


def _sizes(lengths: str | None, length: int | None) -> list[int]:
    """The lengths of a grid; none where there is to be one text."""
    if lengths is None:
        return []
    if length is not None:
        raise RegardError("--length and --lengths were both given; use one of them.")
    parts = [part.strip() for part in lengths.split(",")]
    if not all(part.isdigit() and int(part) for part in parts):
        raise RegardError(f"--lengths is {lengths!r}; wanted numbers of tokens such as 150,300,600.")
    return [int(part) for part in parts]
