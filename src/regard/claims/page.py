"""The ledger as a page: a table of verdicts, then every claim with its figure and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.claims.ledger import GROUPS, Entry
from regard.claims.timing import machine
from regard.claims.words import number

__all__ = ["numbers_of", "page"]

OPENING = """# The ledger of claims

Are the claims that introductions to attention make true? Each one is a small program that measures it. **No
verdict was written by hand:** `regard claims --docs docs/claims.md` wrote this page, and every verdict
follows from numbers that could have come out otherwise. The tests feed each program something broken, and
the verdict changes.

A claim **holds**; it **holds with a condition**, which the sentence names; it is **folklore**, with a
counterexample; or it is a **misprint**, with the right number. `regard claims` measures all of them on your
machine, and `regard claims sinks` measures one of them. In Python, use `regard.claims.run()`.
"""
# Longer lists are shown in the figure and by --json, not in the table.
SHOWN = 6


def page(entries: Sequence[Entry], images: str) -> str:
    """The page in Markdown; `images` is the folder of the figures, seen from the page.

    >>> from regard.claims import run
    >>> print(page(run(["gqa-saves"]), "images").splitlines()[0])
    # The ledger of claims
    """
    by_id = {entry.claim.id: entry for entry in entries}
    parts = [
        OPENING,
        _table(entries),
        f"Seconds and speeds are of the machine that wrote this page: {machine()}.\n",
    ]
    for group, claims in GROUPS.items():
        chosen = [by_id[claim.id] for claim in claims if claim.id in by_id]
        if chosen:
            parts += [f"## {group}\n", *(_section(entry, images) for entry in chosen)]
    return "\n".join(parts)


def _table(entries: Sequence[Entry]) -> str:
    rows = [f"| [{e.claim.id}](#{e.claim.id}) | {e.claim.statement} | {e.verdict.kind} |" for e in entries]
    return "\n".join(["| claim | statement | verdict |", "| --- | --- | --- |", *rows, ""])


def _section(entry: Entry, images: str) -> str:
    claim, verdict = entry.claim, entry.verdict
    lines = [
        f"### {claim.id}",
        "",
        f"> {claim.statement}",
        "",
        f"**{str(verdict.kind).capitalize()}.** {verdict}",
        "",
    ]
    if entry.measurement.picture is not None:
        lines += [f"![{claim.id}: what was measured]({images}/{claim.id}.svg)", ""]
    lines += [f"*How:* {claim.how}", ""]
    numbers = [f"{name}: {shown}" for name, shown in numbers_of(entry).items()]
    return "\n".join([*lines, f"*Numbers:* {'; '.join(numbers)}.", ""]) if numbers else "\n".join(lines)


def numbers_of(entry: Entry) -> dict[str, str]:
    """The measurement as text: numbers, names and short lists, without long lists.

    >>> from regard.claims import run
    >>> numbers_of(run(["gqa-saves"])[0])["ratio"]
    '1/5'
    """
    shown = {name.replace("_", " "): _plain(value) for name, value in entry.measurement.numbers.items()}
    return {name: value for name, value in shown.items() if value is not None}


def _plain(value: Any) -> str | None:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        parts = [(name, _plain(inner)) for name, inner in value.items()]
        fits = 0 < len(parts) <= SHOWN and all(inner is not None for _, inner in parts)
        said = ", ".join(f"{str(name).replace('_', ' ')}: {inner}" for name, inner in parts)
        return f"({said})" if fits else None
    shown = [_plain(inner) for inner in value]
    return ", ".join(map(str, shown)) if 0 < len(shown) <= SHOWN else None
