"""The published site holds one folder per version.

python -m building.versions SITE PUBLISHED --ref refs/tags/v0.2.0

A tag's site goes to a folder named after its minor version, and to `latest` unless a later release is there;
any other ref goes to `dev`. `versions.json` is what the theme reads for its menu of versions, and the page at
the root leads to the latest release, or to `dev` before the first.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

__all__ = ["add", "version_of"]

DEV, LATEST = "dev", "latest"
TAG = re.compile(r"refs/tags/v(\d+)\.(\d+)\.\d+$")
ROOT_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>regard</title>
<meta http-equiv="refresh" content="0; url={to}/index.html">
</head>
<body><a href="{to}/index.html">The documentation of regard</a></body>
</html>
"""


def version_of(ref: str) -> str:
    """The version that a git ref publishes.

    >>> version_of("refs/tags/v0.2.1"), version_of("refs/tags/v0.2.0rc1"), version_of("refs/heads/main")
    ('0.2', 'dev', 'dev')
    """
    tag = TAG.match(ref)
    return f"{tag[1]}.{tag[2]}" if tag else DEV


def add(site: Path, published: Path, version: str) -> None:
    """Put a built site among those that are published, in place of the one of the same version."""
    _copy(site, published / version)
    releases = sorted(filter(_is_release, (path.name for path in published.iterdir())), key=_order)[::-1]
    if releases and releases[0] == version:
        _copy(site, published / LATEST)
    entries = [
        {"version": name, "title": name, "aliases": [LATEST] if name == releases[0] else []}
        for name in releases
    ]
    if (published / DEV).is_dir():
        entries.append({"version": DEV, "title": "main", "aliases": []})
    (published / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    root = ROOT_PAGE.format(to=LATEST if releases else DEV)
    (published / "index.html").write_text(root, encoding="utf-8")
    # GitHub would leave out folders whose names begin with an underscore.
    (published / ".nojekyll").touch()


def _copy(site: Path, to: Path) -> None:
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(site, to)


def _is_release(name: str) -> bool:
    return re.fullmatch(r"\d+\.\d+", name) is not None


def _order(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split(".")))


def main() -> None:
    """Publish a site into a folder, which is made if it is not there."""
    parser = argparse.ArgumentParser(
        "python -m building.versions", description="Add a built site to the published versions."
    )
    parser.add_argument("site", type=Path, help="the built site")
    parser.add_argument("published", type=Path, help="the folder of all versions")
    parser.add_argument("--ref", required=True, help="what was built: refs/heads/main, or refs/tags/v0.2.0")
    given = parser.parse_args()
    if not (given.site / "index.html").is_file():
        parser.error(f"{given.site} holds no index.html; build the site first: make docs")
    given.published.mkdir(parents=True, exist_ok=True)
    version = version_of(given.ref)
    add(given.site, given.published, version)
    print(f"{given.site} is published as {given.published / version}")


if __name__ == "__main__":
    main()
