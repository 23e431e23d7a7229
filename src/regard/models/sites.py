"""Where a model attends: which stack, which layer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["ROLES", "Site", "index_of", "role_of"]

# Found by words in a module's path, the first that fits; cross-attention often says "encoder" too.
ROLES = {
    "cross": r"cross|encoder_attn|encdec|enc_dec|multihead_attn|src_attn",
    "vision": r"vision|visual|image|vit\b|pixel",
    "audio": r"audio|speech|acoustic",
    "decoder": r"decoder",
    "encoder": r"encoder",
}


@dataclass(frozen=True)
class Site:
    """One place where a model attends; `turn` numbers the calls of a module that is used repeatedly."""

    name: str
    role: str
    index: int
    turn: int = 0

    def __str__(self) -> str:
        return f"{self.role} {self.index} ({self.name})"


def role_of(name: str, module: Any) -> str:
    """Which stack a module belongs to: encoder, decoder, cross, vision or audio.

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
    """The number of a module's layer: what the module says, else the first number in its path, else 0."""
    index = getattr(module, "layer_idx", None)
    if isinstance(index, int):
        return index
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    return int(numbers[0]) if numbers else 0
