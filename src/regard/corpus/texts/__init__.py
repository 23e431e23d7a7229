"""Readers of the documents of a corpus: text files, JSON lines, Parquet, Arrow."""

from regard.corpus.texts.corpus import Texts
from regard.corpus.texts.source import Document, Unreadable

__all__ = ["Document", "Texts", "Unreadable"]
