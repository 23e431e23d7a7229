"""The sites of a model's attention: stack and layer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["APART", "ROLES", "Site", "index_of", "role_of"]

# Stacks whose queries and keys are not tokens of one text, so that no distance lies between them: of a
# decoder's tokens and an encoder's, of a pooling head's probe, of a stream that predicts.
APART = frozenset({"cross", "pooling", "predicting"})

# Words in a module's path, in order of precedence; paths of cross-attention often contain "encoder" too.
ROLES = {
    "cross": r"cross(?!_modal)|visual_attention\b|encoder_attn|encdec|enc_dec|multihead_attn|src_attn",
    "vision": r"vision|visual|image|vit\b|pixel",
    "audio": r"audio|speech(?!t5)|acoustic",
    # The text of a model that sees too: some let it look ahead within the prompt.
    "decoder": r"decoder|language_model(?!.*encoder)",
    "encoder": r"encoder",
}


@dataclass(frozen=True)
class Site:
    """One attention of a model; `turn` numbers the calls of a module that is used repeatedly."""

    name: str
    role: str
    index: int
    turn: int = 0

    def __str__(self) -> str:
        return f"{self.role} {self.index} ({self.name})"


def role_of(name: str, module: Any) -> str:
    """The stack that a module belongs to: encoder, decoder, cross, vision or audio.

    >>> role_of("model.decoder.layers.0.encoder_attn", None), role_of("bert.encoder.layer.3.attention", None)
    ('cross', 'encoder')
    """
    if getattr(module, "is_cross_attention", False):
        return "cross"
    for role, words in ROLES.items():
        if re.search(words, name, re.IGNORECASE):
            return role
    return "decoder" if getattr(module, "is_causal", True) else "encoder"


def index_of(name: str, module: Any) -> int:
    """The layer number of a module: its own attribute, else the first number in its path, else 0."""
    index = getattr(module, "layer_idx", None)
    if isinstance(index, int):
        return index
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    return int(numbers[0]) if numbers else 0
