"""The options of a server."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Settings", "cache_folder"]

STATIC = Path(__file__).parent / "static"


@dataclass(frozen=True)
class Settings:
    """The paths of recordings and caches, the address, and limits.

    `recordings` are recordings, or folders of them; the server serves no other files. A `host` other than
    loopback needs a `token`. Sizes are in bytes.

    >>> Settings(host="0.0.0.0", port=8000).local, Settings().local
    (False, True)
    """

    recordings: tuple[Path, ...] = ()
    model: str | None = None
    cache: Path = field(default_factory=lambda: cache_folder())
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    static: Path = STATIC
    cache_bytes: int = 8 << 30
    """How much of the disk overviews may take; those used longest ago go first."""
    tile_bytes: int = 96 << 20
    body_bytes: int = 4 << 20
    body_seconds: float = 20.0
    """How long the body of a request may take to arrive; until then it takes the place of another request."""
    upload_bytes: int = 64 << 30
    """How large a recording may be that is opened from the page, where the page is on this machine."""
    requests: int = 64
    """How many requests are worked on at once before others are turned away."""

    def without_folders(self, text: str) -> str:
        """The message with file names instead of paths, so that it doesn't reveal folders to other machines.

        >>> Settings((Path("/data/runs/mine.regard"),)).without_folders("/data/runs/mine.regard is damaged.")
        'mine.regard is damaged.'
        """
        given = [path.expanduser().resolve().parent for path in self.recordings]
        roots = {*given, self.cache, STATIC, Path(tempfile.gettempdir()), Path.home()}
        # Longest paths first, because a folder may contain another.
        for root in sorted((str(root) for root in roots if root != root.parent), key=len, reverse=True):
            text = text.replace(f"{root}{os.sep}", "")
        return text

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("127.0.0.1", "localhost", "::1")


def cache_folder() -> Path:
    """The user's cache folder on Linux, macOS and Windows; $REGARD_CACHE overrides it."""
    if given := os.environ.get("REGARD_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "regard"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "regard" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"
