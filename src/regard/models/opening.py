"""`load`: open a saved recording."""

from __future__ import annotations

from pathlib import Path

from regard.models.recording import Recording

__all__ = ["load"]


def load(path: str | Path) -> Recording:
    """Open a recording that `regard.record` or `recording.save` wrote; the same as `Recording.open(path)`.

    >>> import tempfile, regard
    >>> from regard.models import bundled
    >>> folder = tempfile.mkdtemp() + "/story.regard"
    >>> made = regard.record(bundled(), "Once upon a time", layers=[0], store=folder)
    >>> regard.load(folder).maps[0].shape == made.maps[0].shape
    True
    """
    return Recording.open(path)
