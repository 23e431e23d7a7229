"""Measurements of textbook claims about attention: `regard.claims.run()`."""

from regard.claims.claim import Claim, Kind, Measurement, Verdict
from regard.claims.ledger import CLAIMS, Entry, find, run

__all__ = ["CLAIMS", "Claim", "Entry", "Kind", "Measurement", "Verdict", "find", "run"]
