"""`regard explain`: every step of attention, with its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.app import LOOK, app
from regard.commands.output import console, print_json, writable
from regard.commands.sources import (
    BUNDLED,
    HeadOption,
    JsonOption,
    LayerOption,
    ModelOption,
    check_head,
    model_named,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.engine.problem import Problem
    from regard.models import Recording
    from regard.tracing import Trace

__all__ = ["explain", "show_trace"]

# Every pair of a text is written out, so it must be short.
LONGEST = 64
# The names of `regard.tracing.EXAMPLES`: they are in the help, which waits for no import.
EXAMPLES = ("cat", "three")


@app.command(rich_help_panel=LOOK, epilog='Example: regard explain "The cat sat on the mat" --query cat')
def explain(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="A short text; a worked example if left out.")
    ] = None,
    name: Annotated[
        str, typer.Option("--example", metavar="NAME", help=f"Which example: {' or '.join(EXAMPLES)}.")
    ] = "cat",
    model: ModelOption = BUNDLED,
    layer: LayerOption = None,
    head: HeadOption = None,
    query: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Follow one query, by its token or its number.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the steps to a self-contained web page instead."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain attention step by step: on a model's own head for a text of yours, or on a worked example."""
    writable(html)
    if as_json and query is not None:
        raise RegardError("--json holds every query; leave out --query, or leave out --json.")
    if text is None and (layer is not None or head is not None or model != BUNDLED):
        raise RegardError('--model, --layer and --head need a text: regard explain "The cat sat on the mat".')
    # What is refused is refused at once: this loads PyTorch.
    from regard.tracing import example

    steps = example(name) if text is None else _on_a_head(text, model, layer, head)
    chosen = _query(steps, query)
    if html is not None:
        html.write_text(steps.to_html(chosen), encoding="utf-8")
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


def _on_a_head(text: str, model: str, layer: int | None, head: int | None) -> Trace:
    """The steps of one head of a real model, with the numbers it computed."""
    from regard.models import record
    from regard.plots import visible

    loaded = model_named(model)
    count = len(loaded.tokenizer(text)["input_ids"])
    if count > LONGEST:
        raise RegardError(
            f"the text has {count} tokens, too many to write out (at most {LONGEST}). Explain a sentence of "
            "it, or look at all of it with: regard view --text FILE."
        )
    recording = record(loaded, text)
    layer, head = _chosen(recording, layer, head)
    typer.echo(f"Layer {layer}, head {head} of the {model} model.\n", err=True)
    tokens = [visible(token.text) for token in recording.tokens]
    return _steps(recording.maps[layer].problem, head, tokens)


def _steps(problem: Problem, head: int, tokens: list[str]) -> Trace:
    """The steps of one head of a layer, with everything that its scores go through."""
    from torch import Tensor

    from regard.tracing import trace

    key_head, scoring, bias = head // problem.group, problem.scoring, problem.scoring.bias
    if isinstance(bias, Tensor):
        bias = bias[0, head if bias.shape[1] > 1 else 0]
    return trace(
        problem.q[0, head],
        problem.k[0, key_head],
        problem.v[0, key_head],
        problem.mask,
        tokens=tokens,
        scale=scoring.scale,
        bias=bias,
        softcap=scoring.softcap,
        sink=None if problem.sink is None else problem.sink[head : head + 1],
        score_mod=scoring.score_mod,
    )


def _chosen(recording: Recording, layer: int | None, head: int | None) -> tuple[int, int]:
    """The head asked for; else the one whose last query is surest of a key that is neither first nor near."""
    if layer is not None and head is not None:
        check_head(recording, layer, head)
        return layer, head
    best, found = -1.0, (0, 0)
    for index in recording.layers if layer is None else [layer]:
        rows = recording.maps[index][0, :, -1]
        if head is not None:
            check_head(recording, index, head)
        for number in range(rows.shape[0]) if head is None else [head]:
            sure = float(rows[number, 1:-2].max()) if rows.shape[1] > 3 else float(rows[number].max())
            if sure > best:
                best, found = sure, (index, number)
    return found


def _query(steps: Trace, given: str | None) -> int | str | None:
    """A token if there is one of that name, otherwise a number if it is one."""
    if given is None or given in steps.tokens or not given.lstrip("-").isdecimal():
        return given
    return int(given)
