"""`regard doctor`: what is wrong with somebody's attention."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.app import CHECK, app
from regard.commands.output import print_json, show
from regard.errors import RegardError

__all__ = ["doctor"]


@app.command(rich_help_panel=CHECK, epilog="Example: regard doctor my_attention.py:attention --causal")
def doctor(
    target: Annotated[
        str, typer.Argument(metavar="FILE:NAME", help="A file, and a function or module in it.")
    ],
    layout: Annotated[
        str | None,
        typer.Option(help="Of q, k and v: bhnd, bnhd, hnd, bnd, nd or bnm; found out if left out."),
    ] = None,
    causal: Annotated[
        bool | None, typer.Option("--causal/--no-causal", help="Whether it is meant to be causal.")
    ] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="The number of heads.")] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="The width of one head, where it is fixed.")] = None,
    mask: Annotated[
        str | None, typer.Option(help="What its mask means: allowed, blocked or additive.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="It is used with a cache of keys and values.")
    ] = False,
    linear_memory: Annotated[
        bool, typer.Option("--linear-memory", help="Its memory must not grow with the square of the length.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds after which it counts as hanging.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Find the classic mistakes in an attention function or module; exit status 1 if there are any."""
    from regard.doctor.isolated import examine_file

    file, colon, name = target.rpartition(":")
    if not colon or not name:
        raise RegardError(
            f"{target!r} does not say what to examine. Name a file and what is in it: file.py:attention."
        )
    options = {"layout": layout, "causal": causal, "heads": heads, "dim": dim, "mask": mask}
    found = examine_file(
        Path(file), name, timeout=timeout, **options, cache=cache or None, linear_memory=linear_memory
    )
    if as_json:
        print_json(found.as_dict())
    else:
        show(str(found))
    if not found.healthy:
        raise typer.Exit(1)
