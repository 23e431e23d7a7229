"""`regard evict`: what does the model lose when keys leave its cache?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.commands.app import app
from regard.commands.output import figure_file, print_json, progress, save_figure, show
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

__all__ = ["evict"]


@app.command(epilog="Example: regard evict --keep 0.25 --policy snapkv --policy sinks")
def evict(
    model: ModelArgument = None,
    text: TextArgument = None,
    keep: Annotated[str, typer.Option(metavar="SHARES", help="The shares of keys to keep.")] = "0.1,0.25,0.5",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="snapkv, h2o, tova, max, sinks, random, mean or kvzip. Repeatable. Default: the first six.",
        ),
    ] = None,
    prompt: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The tokens that are read before eviction. Default: all but the last 128."
        ),
    ] = None,
    needle: Annotated[
        bool, typer.Option("--needle", help="Hide a sentence in the text and ask for it after eviction.")
    ] = False,
    length: Annotated[
        int | None, typer.Option(metavar="N", help="Read only this many tokens of the text.")
    ] = None,
    heads: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="List this many heads for each policy, those that lose most, and measure each alone.",
        ),
    ] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Draw what is lost, also by head: .png, .svg or .pdf."
        ),
    ] = None,
    option: ModelOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what a model loses when keys are evicted from its cache."""
    from regard.eviction import POLICIES, evaluate, evaluate_needle, policy_named

    figure_file(output)
    if length is not None and length < 2:
        raise RegardError(
            f"--length is {length}; wanted at least 2 tokens, a prompt and what comes after it."
        )
    policies = list(dict.fromkeys(map(policy_named, policy))) if policy else list(POLICIES)
    given: dict[str, Any] = {"keep": _shares(keep), "policies": policies, "heads": heads}
    if needle and prompt is not None:
        raise RegardError(
            "--needle and --prompt were both given; with a needle the prompt ends before the question."
        )
    named, read = model_and_text(model, text, option)
    source = text_named(read)
    loaded = model_named(named, dtype=dtype, device=device)
    with progress("Cutting the cache", "runs") as step:
        given["progress"] = step
        if needle:
            found = evaluate_needle(loaded.model, loaded.tokenizer, haystack=source, length=length, **given)
        else:
            found = evaluate(loaded.model, _ids(loaded, source, length), prompt=prompt, **given)
    if output is not None:
        save_figure(found.figure(), output)
        typer.echo(f"Wrote {output}", err=True)
    if as_json:
        print_json(found.to_dict())
        return
    show(found.table())
    for name in found.policies if heads else ():
        show(found.heads(name, min(given["keep"]), heads))


def _ids(loaded: Any, text: str, length: int | None) -> Any:
    """The text as tokens, no more than the model or the user allows."""
    from regard.models.text import context_length, encode

    ids = encode(loaded.model, loaded.tokenizer, text, too_long="truncate")[0]
    limit = context_length(loaded.model) if length is None else length
    return ids[:, :limit]


def _shares(text: str) -> list[float]:
    """Shares as people write them: 0.25, or 25%."""
    try:
        parts = [part.strip() for part in text.split(",")]
        return [float(part[:-1]) / 100 if part.endswith("%") else float(part) for part in parts]
    except ValueError:
        raise RegardError(f"--keep is {text!r}; wanted shares such as 0.1,0.25 or 10%,25%.") from None
