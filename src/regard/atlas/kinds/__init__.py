"""What kinds of heads there are, and how each is recognised."""

from regard.atlas.kinds.catalogue import KINDS
from regard.atlas.kinds.finding import Finding, Kind

__all__ = ["KINDS", "Finding", "Kind"]
