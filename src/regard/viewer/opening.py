"""Prepares `regard view`: finds recordings, or makes one, before serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.places import holds_recording, load_text, located
from regard.viewer.serving import serve
from regard.viewer.settings import Settings

if TYPE_CHECKING:
    from regard.viewer.session import Session

__all__ = ["check", "open_viewer", "prepared", "with_defaults"]


def open_viewer(
    settings: Settings,
    text: str | None = None,
    *,
    book: bool = False,
    open_browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Show recordings. Without any, record a model reading a text, by default the bundled ones.

    Invalid arguments are refused before the server starts; the model is loaded while the server runs.
    """
    if book and (text is not None or settings.model is not None):
        raise RegardError(
            "--book is the bundled model reading the bundled book; leave out --text and --model."
        )
    if text == "-":
        text = load_text(text)  # which can be read once only
    check(settings, text)
    if settings.recordings and text is None and not book:
        serve(settings, open_browser=open_browser, say=say)
        return

    def make(tell: Callable[..., None]) -> Session:
        from regard.viewer.shelf import HALF

        session = prepared(settings, text, tell, book=book)
        session.shelf.warm(HALF if book else session.shelf.names[0])
        return session

    serve(settings, make, open_browser=open_browser, say=say)


def check(settings: Settings, text: str | None = None) -> None:
    """Raise if a given recording, cache, model or text doesn't exist; imports only what is needed for
    that."""
    if settings.recordings:
        _check_recordings(settings.recordings)
    if settings.cache.exists() and not settings.cache.is_dir():
        raise RegardError(f"{settings.cache} is a file; the cache is a folder. Name a folder.")
    if settings.model is not None:
        located(settings.model)
    if text is not None and not load_text(text).strip():
        raise RegardError("the text is empty; give at least one word.")


def prepared(
    settings: Settings,
    text: str | None = None,
    tell: Callable[..., None] | None = None,
    *,
    book: bool = False,
) -> Session:
    """A session with at least one recording; `tell(doing, done, total)` receives the progress."""
    from regard.viewer.session import Session
    from regard.viewer.shelf import BUNDLED, HALF

    check(settings, text)
    session = Session(settings)
    if settings.recordings and text is None and not book:
        return session
    _add_recording(session, HALF if book else session.shelf.names[0], text, tell or (lambda *_: None))
    if session.shelf.names[0] == BUNDLED and not book:
        _add_finished_book(session)
    return session


def _add_recording(session: Session, name: str, text: str | None, tell: Callable[..., None]) -> None:
    """Add the recording that the viewer shows first; only what is not cached needs the model."""
    from regard.models import progress, sample_text
    from regard.viewer.making import book_path, book_recording, cached_recording, recorded, story_path
    from regard.viewer.session import BOOK
    from regard.viewer.shelf import BUNDLED, HALF

    cache, book = session.settings.cache, name == HALF
    said = sample_text() if text is None else load_text(text)
    path = book_path(cache) if book else story_path(said, cache) if name == BUNDLED else None
    title = "bundled story" if text is None else Path(text).name if _is_file(text) else said
    title = BOOK if book else title[:40] if name == BUNDLED else f"{title[:40]} ({name})"
    if path is not None and recorded(path):
        session.library.add(path, title)
        return
    tell("Loading the bundled model" if name in (BUNDLED, HALF) else f"Loading the model ({name})")
    loaded = session.shelf.load(name)
    doing = "Reading the whole book" if book else "Recording its attention, layer by layer"
    with progress("Recording") as bar:

        def step(done: int, total: int) -> None:
            bar(done, total)
            tell(doing, done, total)

        if book:
            path = book_recording(loaded, cache, step)
        else:
            path = cached_recording(loaded, said, cache, path=path, progress=step)
    session.library.add(path, title)


def _add_finished_book(session: Session) -> None:
    """Add the book if it was recorded before."""
    from regard.viewer.making import book_path, recorded
    from regard.viewer.session import BOOK

    path = book_path(session.settings.cache)
    if recorded(path):
        session.library.add(path, BOOK)


def with_defaults(recordings: Sequence[Path], model: str | None, **given: Any) -> Settings:
    """Settings as the command line gives them; None means the default.

    >>> with_defaults([], None, port=80, host=None).port
    80
    """
    settings = Settings(tuple(recordings), model)
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _check_recordings(recordings: Sequence[Path]) -> None:
    for path in recordings:
        if holds_recording(path.expanduser()):
            continue  # whether its files are whole is found out while the server runs
        from regard.viewer.library import Library

        found, damaged = Library((path,)).entries() if path.expanduser().is_dir() else ([], [])
        if not found and not damaged:
            raise RegardError(f"{path} is not a recording, nor a folder of recordings. Check the name.")
        # If only some recordings of a folder are damaged, the page opens and shows which.
        if damaged and damaged[0][0].resolve() == path.expanduser().resolve():
            raise RegardError(damaged[0][1])


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False
