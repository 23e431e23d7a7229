"""A report about a recording as one HTML page."""

from regard.report.report import report

__all__ = ["report"]
