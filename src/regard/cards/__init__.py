"""Facts about the heads of a model as plain data: one card per head."""

from regard.cards.atlas import Atlas
from regard.cards.card import Finding, HeadCard

__all__ = ["Atlas", "Finding", "HeadCard"]
