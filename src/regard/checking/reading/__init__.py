"""Parsers of pasted examples into tables of numerals: JSON, Markdown, LaTeX, printed arrays, plain text."""

from regard.checking.reading.read import read

__all__ = ["read"]
