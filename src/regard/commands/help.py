"""The text that `--help` prints: a sentence, the usage, the arguments and options, an example.

It is plain text of one layout in every release of Typer, and needs neither Rich nor torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from textwrap import wrap
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Group"]

# Lines longer than this are hard to read on any terminal.
WIDEST = 96
# Names wider than this get a line of their own.
COLUMN = 26
Rows = Sequence[tuple[str, str]]


class Command(TyperCommand):
    """A command with help in this layout."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        usage = " ".join([ctx.command_path, "[OPTIONS]", *map(_argument, arguments)])
        sections = [("Arguments", [(_argument(one).strip("[]"), _described(one)) for one in arguments])]
        formatter.write(_page(self, usage, [*sections, *_options(self, ctx)]))


class Group(TyperGroup):
    """A command of commands, each listed with its whole summary below a heading."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            sections.setdefault(self.heading_of(name), []).append((name, _paragraphs(command)[0]))
        page = [*sections.items(), *_options(self, ctx)]
        formatter.write(_page(self, f"{ctx.command_path} COMMAND ...", page))

    def heading_of(self, name: str) -> str:
        """The heading that a command is listed below."""
        return "Commands"


def _page(command: Any, usage: str, sections: Iterable[tuple[str, Rows]]) -> str:
    width = min(WIDEST, shutil.get_terminal_size().columns)
    summary, *more = _paragraphs(command)
    blocks = [_wrapped(summary, width), _wrapped(usage, width, "Usage: ", "         ")]
    blocks += [_wrapped(words, width) for words in more]
    filled = [(heading, rows) for heading, rows in sections if rows]
    # All commands in one column; options are longer.
    widest = max(
        (len(name) for heading, rows in filled if heading != "Options" for name, _ in rows), default=0
    )
    for heading, rows in filled:
        column = max(len(name) for name, _ in rows) if heading == "Options" else widest
        blocks.append(f"{heading}:\n{_listed(rows, min(COLUMN, column) + 4, width)}")
    if command.epilog:
        blocks.append(_wrapped(command.epilog, width, after="  "))
    return "\n\n".join(blocks) + "\n"


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(words.split()) for words in (command.help or "").strip().split("\n\n")]


def _wrapped(words: str, width: int, before: str = "", after: str = "") -> str:
    lines = wrap(
        words,
        width,
        initial_indent=before,
        subsequent_indent=after,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def _listed(rows: Rows, column: int, width: int) -> str:
    lines = []
    for name, words in rows:
        start = f"  {name}"
        if len(start) > column - 2:
            lines.append(start)
            start = ""
        lines.append(_wrapped(words, width, start.ljust(column), " " * column))
    return "\n".join(lines)


def _options(command: Any, ctx: Any) -> list[tuple[str, Rows]]:
    """Options under their headings, in the order of the signature."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for one in command.get_params(ctx):
        if one.param_type_name == "option" and not one.hidden:
            heading = getattr(one, "rich_help_panel", None)
            named = heading if isinstance(heading, str) else "Options"
            sections.setdefault(named, []).append((_option(one), _described(one)))
    return list(sections.items())


def _argument(one: Any) -> str:
    """An argument as usage has it: in brackets if it may be left out."""
    name = one.metavar + ("..." if one.nargs == -1 else "")
    return name if one.required else f"[{name}]"


def _option(one: Any) -> str:
    names = ", ".join([*sorted(one.opts, key=len), *one.secondary_opts])
    return names if one.is_flag or one.metavar is None else f"{names} {one.metavar}"


def _described(one: Any) -> str:
    """What the help says, and the default where it is a value that the help does not name."""
    words, default = one.help or "", one.default
    plain = isinstance(default, str | int | float | PurePath) and not isinstance(default, bool)
    if one.param_type_name == "argument" or "Default" in words or not plain or default == "":
        return words
    return f"{words} Default: {default:g}." if isinstance(default, float) else f"{words} Default: {default}."
