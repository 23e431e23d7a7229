"""What `regard view` does before it serves: find the recordings, or make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.models import load_text, progress, sample_text
from regard.viewer.library import Library
from regard.viewer.making import cached_recording
from regard.viewer.serving import serve
from regard.viewer.session import Session
from regard.viewer.settings import Settings
from regard.viewer.shelf import BUNDLED

__all__ = ["open_viewer", "prepared", "with_defaults"]


def open_viewer(
    settings: Settings,
    text: str | None = None,
    *,
    open_browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Show recordings; without any, that of a model reading a text, the bundled ones unless given."""
    serve(settings, prepared(settings, text), open_browser=open_browser, say=say)


def prepared(settings: Settings, text: str | None = None) -> Session:
    """A session with something to look at."""
    _check(settings.recordings)
    session = Session(settings)
    if settings.recordings and text is None:
        return session
    said = sample_text() if text is None else load_text(text)
    if not said.strip():
        raise RegardError("the text is empty; give at least one word.")
    name = session.shelf.names[0]
    loaded = session.shelf.load(name)
    with progress("Recording") as tell:
        path = cached_recording(loaded, said, settings.cache, progress=tell)
    title = "bundled story" if text is None else Path(text).name if _is_file(text) else said
    session.library.add(path, title[:40] if name == BUNDLED else f"{title[:40]} ({name})")
    return session


def with_defaults(recordings: Sequence[Path], model: str | None, **given: Any) -> Settings:
    """Settings as the command line gives them, where None means: as usual.

    >>> with_defaults([], None, port=80, host=None).port
    80
    """
    settings = Settings(tuple(recordings), model)
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _check(recordings: Sequence[Path]) -> None:
    for path in recordings:
        if not path.expanduser().is_dir() or not any(Library((path,)).entries()):
            raise RegardError(f"{path} is not a recording, nor a folder of recordings. Check the name.")


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False
