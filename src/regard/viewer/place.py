"""The stack, layer and head that a view starts with."""

from __future__ import annotations

from regard.errors import MapError, RecordingError
from regard.models import Recording

__all__ = ["PLACE", "WORDS", "place_of"]

WORDS = {
    "view": ("map", "text"),
    "how": ("max", "mean"),
    "scale": ("log", "linear"),
    "palette": ("viridis", "cividis", "inferno", "magma", "greys"),
}
PLACE = ("role", "layer", "head")


def place_of(
    recording: Recording, role: str | None = None, layer: int | None = None, head: int | None = None
) -> tuple[str, int, int]:
    """Check that stack, layer and head were recorded; choose those that are not given."""
    stacks = recording.stacks
    role = role or next(iter(stacks), None)
    if role is None:
        raise RecordingError("nothing was recorded yet; run the model inside the watch block.")
    if role not in stacks:
        raise RecordingError(f"the recording has no {role}; its stacks are: {', '.join(stacks)}.")
    layers = list(stacks[role])
    # By default take a layer at two thirds, where heads are specialised; the first attend to neighbours.
    layer = layers[len(layers) * 2 // 3] if layer is None else layer
    heads = stacks[role][layer].map.shape[1]
    if head is not None and not 0 <= head < heads:
        raise MapError(f"head {head} is out of range: the layer has {heads} (head 0 to {heads - 1}).")
    return role, layer, head or 0
