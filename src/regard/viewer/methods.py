"""`recording.show()` and `map.show()`, which `regard.models` and `regard.maps` declare."""

from __future__ import annotations

from typing import Any

from regard.extension import implements
from regard.maps import AttentionMap
from regard.models import Recording
from regard.viewer.widget import show

__all__: list[str] = []


@implements(AttentionMap.show)
def _show_map(self: AttentionMap, **options: Any) -> Any:
    return show(self, **options)


@implements(Recording.show)
def _show_recording(self: Recording, **options: Any) -> Any:
    return show(self, **options)
