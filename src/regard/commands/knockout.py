"""`regard knockout`: cut an edge, a head or a token, and see whether it mattered."""

from __future__ import annotations

from typing import Annotated, Any

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

__all__ = ["knockout"]


@app.command(
    epilog='Example: regard knockout "The heron was called Osgood. The heron, Os" --head 6.3',
)
def knockout(
    model: ModelArgument = None,
    text: TextArgument = None,
    heads: Annotated[
        list[str] | None,
        typer.Option(
            "--head",
            metavar="LAYER.HEAD",
            help="A head to cut, such as 6.3; all heads of layer 6: 6.*; of another stack: cross.1.3. "
            "Repeatable.",
        ),
    ] = None,
    edges: Annotated[
        list[str] | None,
        typer.Option(
            "--edge",
            metavar="EDGE",
            help="Edges to cut, as LAYER.HEAD:QUERY:KEY: 6.3:40:10 or *.*:20:5-8. Repeatable.",
        ),
    ] = None,
    keys: Annotated[
        list[int] | None,
        typer.Option("--key", metavar="N", help="A token to hide from all queries. Repeatable."),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="heads|keys", help="Cut each head, or each token, in turn.")
    ] = None,
    at: Annotated[
        int, typer.Option(metavar="N", help="The token whose prediction is compared. Default: -1, the last.")
    ] = -1,
    reply: Annotated[
        str | None,
        typer.Option(
            "--written", metavar="TEXT", help="The text that an encoder-decoder has written so far."
        ),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", help="The number of tokens to list.")] = 5,
    option: ModelOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cut heads, edges or tokens, and measure how the prediction changes."""
    cuts = {
        "heads": [_head(given) for given in heads or []],
        "edges": [_edge(given) for given in edges or []],
        "keys": keys or [],
    }
    if sweep is not None and any(cuts.values()):
        raise RegardError(
            "--sweep cuts each in turn; leave out --head, --edge and --key, or leave out --sweep."
        )
    if sweep is None and not any(cuts.values()):
        raise RegardError(
            "nothing was named to cut; give --head 6.3, --edge 6.3:40:10, --key 4 or --sweep heads."
        )
    if sweep not in (None, "heads", "keys"):
        raise RegardError(f"--sweep is {sweep!r}; wanted heads or keys.")
    if top < 1:
        raise RegardError(f"--top is {top}; wanted at least 1.")
    named, given = model_and_text(model, text, option)
    said = text_named(given)
    loaded = model_named(named, dtype=dtype, device=device)
    if reply is not None and not loaded.model.config.is_encoder_decoder:
        raise RegardError("--written is for encoder-decoder models; leave it out.")
    result = _swept(loaded, said, sweep) if sweep else _cut(loaded, said, cuts, at, top, reply)
    if as_json:
        print_json(result.to_dict())
    else:
        show(result.table())


def _cut(loaded: Any, text: str, cuts: dict[str, Any], at: int, top: int, written: str | None) -> Any:
    from regard.atlas import knockout as cut

    return cut(loaded.model, text, tokenizer=loaded.tokenizer, at=at, top=top, written=written, **cuts)


def _swept(loaded: Any, text: str, over: str) -> Any:
    from regard.atlas import importance

    with progress(f"Cutting each of the {over}", over) as step:
        return importance(loaded.model, text, over=over, tokenizer=loaded.tokenizer, progress=step)


def _head(given: str) -> tuple[Any, ...]:
    """A layer and a head, with the stack in front where one is named."""
    *stack, layer, head = given.split(".") if given.count(".") else (given, "")
    if not head or len(stack) > 1:
        raise RegardError(
            f"--head is {given!r}; wanted LAYER.HEAD such as 6.3, 6.* for all of a layer, or cross.1.3."
        )
    return *stack, _span("--head", given, layer), _span("--head", given, head)


def _edge(given: str) -> Any:
    from regard.atlas import Edge

    parts = given.split(":")
    if len(parts) != 3:
        raise RegardError(f"--edge is {given!r}; wanted LAYER.HEAD:QUERY:KEY such as 6.3:40:10.")
    *stack, layer, head = _head(parts[0])
    query, key = (_span("--edge", given, part) for part in parts[1:])
    return Edge(layer, head, query, key, *stack)


def _span(option: str, given: str, part: str) -> int | range | None:
    """A number, a range such as 5-8 (both ends included), or * for all."""
    if part == "*":
        return None
    first, dash, last = part.partition("-") if not part.startswith("-") else (part, "", "")
    try:
        return range(int(first), int(last) + 1) if dash else int(first)
    except ValueError:
        raise RegardError(f"{option} is {given!r}; {part!r} is not a number, a range or *.") from None
