"""The program that the commands join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from regard.commands.help import Command, Group

__all__ = ["App", "app"]

# The headings of the help, and the commands below them, the likeliest first.
SECTIONS = {
    "Look": ("view", "record", "plot", "report", "explain"),
    "Ask": ("atlas", "compare", "knockout", "needle", "advise", "evict", "corpus"),
    "Check": ("doctor", "check", "claims", "cost", "exercise"),
    "Other": ("mcp", "info"),
}
ORDER = [name for names in SECTIONS.values() for name in names]


class App(typer.Typer):
    """A Typer whose commands print their help in one plain layout."""

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:
        return super().command(name, cls=Command, **options)


class _Sectioned(Group):
    """The root, whose commands are in the order of the sections and not in that of their files."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def heading_of(self, name: str) -> str:
        return next(heading for heading, names in SECTIONS.items() if name in names)


app = App(
    cls=_Sectioned,
    help="Exact attention you can look at, at any length.",
    epilog="Example: regard view",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
