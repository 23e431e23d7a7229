"""`regard explain`: every step of attention, with its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.app import app
from regard.commands.output import console, print_json, writable, written
from regard.commands.sources import (
    DeviceOption,
    DtypeOption,
    HeadOption,
    JsonOption,
    LayerOption,
    ModelArgument,
    ModelOption,
    head_named,
    model_and_text,
    model_named,
    text_named,
)
from regard.commands.words import query_named
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.models import LoadedModel, Recording
    from regard.tracing import Trace

__all__ = ["explain", "show_trace"]

# Every pair of a text is written out, so it must be short.
LONGEST = 64
# The names of `regard.tracing.EXAMPLES`: they are in the help, which waits for no import.
EXAMPLES = ("cat", "three")


@app.command(epilog='Example: regard explain "The cat sat on the mat" --query cat')
def explain(
    model: ModelArgument = None,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="A short text or its file. Default: a worked example."),
    ] = None,
    name: Annotated[
        str, typer.Option("--example", metavar="NAME", help=f"The worked example: {' or '.join(EXAMPLES)}.")
    ] = "cat",
    option: ModelOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    layer: LayerOption = None,
    head: HeadOption = None,
    query: Annotated[
        str | None, typer.Option(metavar="WORD", help="Explain only this query: a word or its number.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the steps to a web page that opens from disk."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show every step of one head, with its numbers: for a text, or for a worked example."""
    writable(html)
    if as_json and query is not None:
        raise RegardError("--json prints every query; leave out --query, or leave out --json.")
    layer, number = head_named(head, layer)
    named, given = model_and_text(model, text, option)
    if given is None and not (layer is head is model is option is None):
        raise RegardError('a model and a head need a text: regard explain bundled "The cat sat on the mat".')
    # What is refused is refused at once: this loads PyTorch.
    from regard.tracing import example

    if given is None:
        steps = example(name)
        chosen = _query(steps, query)
    else:
        said = text_named(given)
        loaded = model_named(named, dtype=dtype, device=device)
        steps, chosen = _on_a_head(named, loaded, said, layer, number, query)
    if html is not None:
        with written(html) as draft:
            draft.write_text(steps.to_html(chosen), encoding="utf-8")
        typer.echo(f"Wrote {html}", err=as_json)
    if as_json:
        print_json(steps.to_dict())
    elif html is None:
        show_trace(steps, chosen)


def show_trace(steps: Trace, query: int | str | None = None) -> None:
    """In colour on a terminal, as plain text into a file or a pipe."""
    if console().is_terminal:
        steps.show(query)
    else:
        typer.echo(steps.to_text(query))


def _on_a_head(
    name: str, loaded: LoadedModel, text: str, layer: int | None, head: int | None, query: str | None
) -> tuple[Trace, int | str | None]:
    """The steps of one head of a real model, with its numbers, and the query that was asked for."""
    from regard.models import record
    from regard.models.head_trace import head_trace
    from regard.plots import visible

    count = len(loaded.tokenizer(text)["input_ids"])
    if count > LONGEST:
        raise RegardError(
            f"the text has {count} tokens, too many to write out (at most {LONGEST}). Explain a sentence of "
            "it, or look at all of it with: regard view --text FILE."
        )
    recording = record(loaded, text)
    tokens = [visible(token.text) for token in recording.tokens]
    asked = None
    if query is not None:
        asked, note = query_named(query, recording.tokens, tokens)
        typer.echo(note, err=True, nl=bool(note))
    layer, head = _chosen(recording, layer, head, -1 if asked is None else asked)
    typer.echo(f"Layer {layer}, head {head} of the {name} model.\n", err=True)
    if "∅" in tokens:
        special = repr(loaded.tokenizer.decode([recording.tokens[tokens.index("∅")].id]))
        typer.echo(
            f"∅ is {special}, a special token that the tokenizer puts before the text.\n",
            err=True,
        )
    return head_trace(loaded, text, recording, layer, head, tokens), asked


def _chosen(recording: Recording, layer: int | None, head: int | None, query: int) -> tuple[int, int]:
    """The head asked for; else the one whose query is surest of a key that is neither first nor near."""
    if layer is not None and head is not None:
        recording.layers[layer].check_head(head)
        return layer, head
    best, found = -1.0, (0, 0)
    for index in recording.layers if layer is None else [layer]:
        rows = recording.maps[index][0, :, query]
        far = query % recording.maps[index].shape[2] - 1
        if head is not None:
            recording.layers[index].check_head(head)
        for number in range(rows.shape[0]) if head is None else [head]:
            sure = float(rows[number, 1:far].max()) if far > 1 else float(rows[number].max())
            if sure > best:
                best, found = sure, (index, number)
    return found


def _query(steps: Trace, given: str | None) -> int | str | None:
    """A token if there is one of that name, otherwise a number if it is one."""
    if given is None or given in steps.tokens or not given.lstrip("-").isdecimal():
        return given
    return int(given)
