"""The kinds of heads, and how each is recognised."""

from regard.atlas.kinds.catalogue import KINDS, OF_ONE_TEXT
from regard.atlas.kinds.finding import Kind

__all__ = ["KINDS", "OF_ONE_TEXT", "Kind"]
