"""Every kind, in the order in which a card lists them."""

from __future__ import annotations

from regard.atlas.kinds.far import RETRIEVAL
from regard.atlas.kinds.finding import Kind
from regard.atlas.kinds.places import FIRST, LOCAL, PREVIOUS, SELF, STRIDED
from regard.atlas.kinds.spread import UNIFORM
from regard.atlas.kinds.tokens import DELIMITER, DUPLICATE, INDUCTION

__all__ = ["KINDS"]

KINDS: tuple[Kind, ...] = (
    PREVIOUS,
    SELF,
    FIRST,
    DUPLICATE,
    INDUCTION,
    LOCAL,
    STRIDED,
    UNIFORM,
    DELIMITER,
    RETRIEVAL,
)
