"""Metadata that depends on where the repository is: addresses, and a README whose links work on PyPI.

REGARD_REPOSITORY names the repository, or the variables of GitHub Actions do. A build that knows none
leaves the README as it is, and names no addresses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["absolute", "addresses", "repository", "version"]

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def repository(environment: Mapping[str, str] = os.environ) -> str | None:
    """The address of the repository, or None.

    >>> repository({"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "someone/regard"})
    'https://github.com/someone/regard'
    """
    if given := environment.get("REGARD_REPOSITORY"):
        return given.rstrip("/")
    name = environment.get("GITHUB_REPOSITORY")
    return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}" if name else None


def version(root: Path = ROOT) -> str:
    """The version that the sources name."""
    source = (root / "src" / "regard" / "_version.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]


def addresses(home: str | None, release: str) -> dict[str, str]:
    """The addresses that PyPI shows beside the README.

    >>> addresses("https://github.com/someone/regard", "0.1.0")["Changelog"]
    'https://github.com/someone/regard/blob/v0.1.0/CHANGELOG.md'
    """
    if home is None:
        return {}
    return {
        "Source": home,
        "Documentation": f"{home}/tree/v{release}/docs",
        "Changelog": f"{home}/blob/v{release}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


def absolute(markdown: str, home: str | None, release: str) -> str:
    """A page whose links and pictures lead to the repository at the tag of a version; code is left alone.

    >>> absolute("![a map](docs/a.png) [b](b.md#c)", "https://x.org/r", "1.0")
    '![a map](https://x.org/r/raw/v1.0/docs/a.png) [b](https://x.org/r/blob/v1.0/b.md#c)'
    """
    if home is None:
        return markdown

    def led(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "tree" if (ROOT / link["path"]).is_dir() else "blob"
        return (
            f"{link['image']}[{link['text']}]({home}/{kind}/v{release}/{link['path']}{link['anchor'] or ''})"
        )

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(led, part) for part in parts)
