"""`llms.txt` and a Markdown copy of every page: the documentation as language-model agents read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["copied", "llms_txt", "summary_of", "title_of", "write"]

ATTRIBUTE = re.compile(r"\{ data-line=\"\d+\" \}")
CODE = re.compile(r"\]\(((?:\.\./)*code/[^)]+)\.md\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def title_of(markdown: str) -> str:
    """The first heading of a page.

    >>> title_of("intro\\n# Export and import\\nmore")
    'Export and import'
    """
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return found[1].strip() if found else ""


def summary_of(markdown: str) -> str:
    """The first sentence below the first heading, as plain text.

    >>> summary_of("# Title\\n\\n`watch` records [a model](m.md). And more.")
    '`watch` records a model.'
    """
    body = FENCE.sub("", markdown)
    for block in body.partition(f"# {title_of(body)}")[2].split("\n\n")[1:]:
        text = " ".join(block.split())
        if text and not text.startswith(("#", "|", "!", "<", ">", "{", "- ", "* ")):
            plain = re.sub(r"\[([^\]]+)\]\([^)]+\)(?:\{[^}]*\})?", r"\1", text).replace("**", "")
            return re.split(r"(?<=[.:?!]) ", plain, maxsplit=1)[0]
    return ""


def copied(markdown: str) -> str:
    """A page's Markdown as it can be read alone: links to code lead to the site's pages of it."""
    return CODE.sub(r"](\1.html)", ATTRIBUTE.sub("", markdown))


def llms_txt(pages: Mapping[str, str], reference: Mapping[str, str]) -> str:
    """What there is, for agents: every page with its first sentence, then the reference."""
    lines = [
        "# regard",
        "",
        "> Exact attention you can look at, at any length: a Python library and a tool.",
        "",
    ]
    for heading, chosen in (("Documentation", pages), ("Reference", reference)):
        lines += [f"## {heading}", ""]
        for address, markdown in chosen.items():
            summary = summary_of(markdown)
            lines.append(
                f"- [{title_of(markdown) or address}]({address})" + (f": {summary}" if summary else "")
            )
        lines.append("")
    return "\n".join(lines)


def write(site: Path, pages: Mapping[str, str], reference: Mapping[str, str]) -> None:
    """Put the copies and `llms.txt` into a built site."""
    for address, markdown in {**pages, **reference}.items():
        path = site / address
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(copied(markdown), encoding="utf-8")
    (site / "llms.txt").write_text(llms_txt(pages, reference), encoding="utf-8")
