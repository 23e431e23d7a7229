"""`show`: the widget of a recording or a map in a notebook, or a still picture if no widget can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.errors import RecordingError, RegardError
from regard.maps import AttentionMap
from regard.models import Recording
from regard.viewer.loose import recording_of
from regard.viewer.picture import Picture
from regard.viewer.place import PLACE, WORDS, place_of
from regard.viewer.settings import STATIC

__all__ = ["show"]

INSTALL = "To pan and zoom, install the widget (pip install 'regard[notebook]') and restart the kernel."
BUILD = "To pan and zoom, build the page first (make frontend) and restart the kernel."
NUMBERS = ("query", "key", "x", "y", "z")


def show(
    what: Recording | AttentionMap, *, tokens: Sequence[str] | None = None, height: int = 640, **view: Any
) -> Any:
    """Show the deep-zoom map and the text of a recording, or an `AttentionMap` whose keys are named `tokens`.

    The arguments select the first view: `view` is "map" or "text", then `role`, `layer` and `head`; `query`
    and `key` are the cell at the cross-hair; `x`, `y` and `z` are the key and query in the middle and log2 of
    the pixels per cell; `how` is "max" or "mean", `scale` is "log" or "linear", and `palette` a palette. All
    of them are traits of the widget, which can be read and set later. If no widget can run, the result is a
    still picture. For a batch, the first text is shown.

    >>> import torch, regard
    >>> q = torch.zeros(1, 2, 3, 8)
    >>> show(regard.AttentionMap.of(q, q), tokens=["a", "b", "c"], head=1).head
    1
    """
    recording, views = _recording_of(what, tokens)
    _check_names(view, views)
    place = place_of(recording, **{name: view.get(name) for name in PLACE})
    try:
        # Check both: ipywidgets may be installed without anywidget, and vice versa.
        import anywidget  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return Picture(recording, *place, INSTALL)
    if not (STATIC / "widget.js").is_file():
        return Picture(recording, *place, BUILD)
    from regard.viewer.notebook import Widget

    view |= dict(zip(PLACE, place, strict=True))
    return Widget(recording, views=views, height=height, **view)


def _recording_of(what: Any, tokens: Sequence[str] | None) -> tuple[Recording, list[str]]:
    """The recording to show, and its views."""
    if isinstance(what, AttentionMap):
        return recording_of(what, tokens), ["map"] if tokens is None else ["map", "text"]
    if not isinstance(what, Recording):
        raise RegardError(f"show got a {type(what).__name__}; it shows a Recording or an AttentionMap.")
    if tokens is not None:
        raise RecordingError(
            "a recording knows its tokens: leave out tokens=, or give it a tokenizer with recording.attach()."
        )
    return what, ["map", "text"]


def _check_names(view: dict[str, Any], views: list[str]) -> None:
    known = (*PLACE, *WORDS, *NUMBERS)
    for name, value in view.items():
        if name not in known:
            raise RegardError(f"show has no option {name!r}; it has {', '.join(known)}, tokens and height.")
        allowed = tuple(views) if name == "view" else WORDS.get(name)
        if allowed is not None and value not in allowed:
            raise RegardError(f"{name} is {value!r}; wanted one of {', '.join(map(repr, allowed))}.")
