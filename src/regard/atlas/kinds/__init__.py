"""The kinds of heads, and how each is recognised."""

from regard.atlas.kinds.catalogue import KINDS
from regard.atlas.kinds.finding import Kind

__all__ = ["KINDS", "Kind"]
