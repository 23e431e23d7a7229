"""Selects the text of a recording, and the layers, that a survey covers."""

from __future__ import annotations

from regard.errors import RecordingError
from regard.models import Layer, Recording

__all__ = ["chosen_layers", "chosen_text"]


def chosen_text(recording: Recording, stack: str | None, row: int) -> tuple[Recording, list[Layer]]:
    """One text of a recording, without padding, and the layers of one stack or of all."""
    chosen_layers(recording, stack)
    text = recording.alone(row, stack)
    return text, chosen_layers(text, stack)


def chosen_layers(recording: Recording, stack: str | None) -> list[Layer]:
    """The layers of one stack, or of all; raises if there are none, or none with a map."""
    stacks = recording.stacks
    if not stacks:
        raise RecordingError("nothing was recorded yet; run the model inside the watch block.")
    if stack is not None and stack not in stacks:
        raise RecordingError(f"the recording has no {stack}; its stacks are: {', '.join(stacks)}.")
    roles = list(stacks) if stack is None else [stack]
    layers = [stacks[role][index] for role in roles for index in sorted(stacks[role])]
    if any(0 in layer.map.shape[2:] for layer in layers):
        raise RecordingError("the recording is of an empty text; give the model at least one token.")
    return layers
