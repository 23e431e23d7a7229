"""Helpers for results: conversion to plain data, and tables for the terminal."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["plain", "shown", "table_of"]


def plain(value: Any) -> Any:
    """A result as dicts, lists, numbers and text for `json.dumps`; NaN, which JSON lacks, becomes None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def table_of(title: str, columns: list[str], rows: list[list[str]], caption: str | None = None) -> Table:
    """A Rich table: the first column as it is, numbers aligned right."""
    from rich.table import Table

    wide = max(map(len, [title, *(caption or "").splitlines()]))
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", min_width=wide)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        # Escape tokens that look like Rich's markup.
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    return table


def shown(token_id: int, text: str | None) -> str:
    """A token for display: its text in quotes, or its number."""
    return f"#{token_id}" if text is None else repr(text)
