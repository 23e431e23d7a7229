"""One page about a recording, for reading."""

from regard.report.report import report

__all__ = ["report"]
