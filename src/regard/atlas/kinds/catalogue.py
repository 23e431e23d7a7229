"""Every kind, in the order in which a card lists them."""

from __future__ import annotations

from regard.atlas.kinds.far import RETRIEVAL
from regard.atlas.kinds.finding import Kind
from regard.atlas.kinds.following import ALIGNMENT
from regard.atlas.kinds.places import FIRST, LOCAL, PREVIOUS, SELF, STRIDED
from regard.atlas.kinds.spread import UNIFORM
from regard.atlas.kinds.tokens import DELIMITER, DUPLICATE, INDUCTION

__all__ = ["KINDS", "OF_ONE_TEXT"]

# The kinds of self-attention, the only ones in an atlas of a corpus.
OF_ONE_TEXT: tuple[Kind, ...] = (
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
KINDS: tuple[Kind, ...] = (*OF_ONE_TEXT, ALIGNMENT)
