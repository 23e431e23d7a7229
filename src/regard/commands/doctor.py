"""`regard doctor`: find what is wrong with an attention implementation."""

from __future__ import annotations

from ast import literal_eval
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.commands.app import app
from regard.commands.output import print_json, show
from regard.commands.sources import JsonOption
from regard.errors import InternalError, RegardError

__all__ = ["doctor"]


@app.command(epilog="Example: regard doctor my_attention.py:attention --causal")
def doctor(
    target: Annotated[
        str, typer.Argument(metavar="FILE:NAME", help="A Python file, and a function or module in it.")
    ],
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="LAYOUT",
            help="The layout of q, k and v: bhnd, bnhd, hnd, bnd, nd or bnm. Default: detected.",
        ),
    ] = None,
    causal: Annotated[
        bool | None, typer.Option("--causal/--no-causal", help="Whether it should be causal.")
    ] = None,
    heads: Annotated[int | None, typer.Option(metavar="N", min=1, help="The number of heads.")] = None,
    dim: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The width of a head, if it is fixed.")
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="The kind of its mask: allowed or blocked (what True means), or additive."
        ),
    ] = None,
    cache: Annotated[bool, typer.Option("--cache", help="It is used with a key–value cache.")] = False,
    linear_memory: Annotated[
        bool, typer.Option("--linear-memory", help="Require memory that grows linearly with the length.")
    ] = False,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="NAME=VALUE", help="An argument for the constructor of a class. Repeatable."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Report a hang after this time.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Find mistakes in an attention function or module.

    Exit status: 0 no mistake found, 1 a mistake found, 2 bad arguments, 3 not examined, 4 internal error.
    """
    from regard.doctor.isolated import examine_file

    file, colon, name = target.rpartition(":")
    if not colon or not name:
        raise RegardError(
            f"{target!r} does not say what to examine. Name a file and what is in it: file.py:attention."
        )
    options = {"layout": layout, "causal": causal, "heads": heads, "dim": dim, "mask": mask}
    options |= {"cache": cache or None, "linear_memory": linear_memory}
    try:
        found = examine_file(Path(file), name, timeout=timeout, given=_given(given or []), **options)
    except InternalError as error:
        show(f"{target}: internal error of regard doctor; please report it with this:\n\n{error}")
        raise typer.Exit(4) from None
    if as_json:
        print_json(found.as_dict())
    else:
        show(str(found))
    status = {"healthy": 0, "broken": 1, "not examined": 3}[found.verdict]
    if status:
        raise typer.Exit(status)


def _given(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE, with values as Python writes them, or as they are."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise RegardError(f"--with is {pair!r}; wanted NAME=VALUE such as n_head=4.")
        try:
            found[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found
