"""What textbooks say about attention, each claim measured: `regard.claims.run()`."""

from regard.claims.claim import Claim, Kind, Measurement, Verdict
from regard.claims.ledger import CLAIMS, Entry, find, run

__all__ = ["CLAIMS", "Claim", "Entry", "Kind", "Measurement", "Verdict", "find", "run"]
