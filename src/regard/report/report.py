"""`report`: a self-contained page about a recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard.atlas import Atlas
from regard.atlas import atlas as survey
from regard.models import Recording
from regard.report.page import page_of
from regard.report.sections import SECTIONS, Draft

__all__ = ["report"]


def report(
    recording: Recording,
    *,
    atlas: Atlas | None = None,
    figures: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Write a self-contained HTML page: the model, the kinds of its heads, attention by position, and
    caveats.

    It covers the first text of a batch, without padding. Pass `atlas` to avoid surveying the heads again;
    `figures` is a folder to which every figure is written as PNG and SVG.

    >>> from regard.models import bundled, record
    >>> page = report(record(bundled(), "The cat sat on the mat.", layers=[5]))
    >>> page.startswith("<!doctype html>"), "http" in page.replace("http://www.w3.org", "")
    (True, False)
    """
    total = len(SECTIONS) + 1
    recording = recording.alone()
    made = survey(recording) if atlas is None else atlas
    draft = Draft(recording, made, figures)
    parts = []
    for done, section in enumerate(SECTIONS, start=1):
        if progress is not None:
            progress(done, total)
        parts.append(section(draft))
    if progress is not None:
        progress(total, total)
    return page_of(draft.title, [part for part in parts if part])
