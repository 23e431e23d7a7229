"""`Texts`: all documents of a corpus, numbered from 0, over all of its files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from regard.corpus.texts.folder import ENDINGS, TextFiles
from regard.corpus.texts.jsonl import JsonLines
from regard.corpus.texts.source import Document, Source, Unreadable
from regard.corpus.texts.tables import ArrowFile, ParquetFile, arrow_files
from regard.errors import CorpusError

__all__ = ["Texts"]

MANY = {".jsonl": JsonLines, ".ndjson": JsonLines, ".parquet": ParquetFile, ".arrow": ArrowFile}
WANTED = (
    f"wanted a folder of text files ({', '.join(ENDINGS)}), .jsonl or .parquet files or a folder of them, or "
    "a folder that datasets saved"
)


class Texts:
    """The documents of a file or folder, in an order that depends only on file names.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> written = (folder / "two.jsonl").write_text('{"text": "one"}\\n{"txt": "two"}\\n')
    >>> for document in Texts(folder).documents(0, 2):
    ...     print(document)
    Document(number=0, name='two.jsonl:1', text='one')
    Unreadable(number=1, name='two.jsonl:2', reason="no field 'text'; its fields are: txt")
    """

    def __init__(self, path: str | Path, field: str = "text") -> None:
        self.path, self.field = Path(path), field
        self.sources = _sources(self.path, field)
        self._ends = list(accumulate(source.count for source in self.sources))
        if not self.count:
            raise CorpusError(f"{path} holds no documents; {WANTED}.")

    @property
    def count(self) -> int:
        """The number of documents, readable or not."""
        return self._ends[-1] if self._ends else 0

    @property
    def marks(self) -> list[dict[str, Any]]:
        """Plain data by which a later run recognises the same texts."""
        return [source.mark for source in self.sources]

    def documents(self, start: int, stop: int) -> Iterator[Document | Unreadable]:
        """The documents start … stop - 1; unreadable ones hold the reason."""
        first = bisect_right(self._ends, start)
        for source, end in list(zip(self.sources, self._ends, strict=True))[first:]:
            begin = end - source.count
            if begin >= stop:
                return
            low, high = max(start, begin), min(stop, end)
            for number, record in enumerate(source.records(low - begin, high - begin), low):
                if record.text is None:
                    yield Unreadable(number, record.name, record.reason or "no text")
                elif not record.text.strip():
                    yield Unreadable(number, record.name, "the text is empty")
                else:
                    yield Document(number, record.name, record.text)

    def document(self, number: int) -> Document | Unreadable:
        """One document."""
        if not 0 <= number < self.count:
            raise CorpusError(f"there is no document {number}; the corpus has {self.count} (from 0).")
        return next(self.documents(number, number + 1))


def _sources(path: Path, field: str) -> list[Source]:
    if path.is_file():
        kind = MANY.get(path.suffix)
        if kind is None:
            raise CorpusError(f"{path} has the ending {path.suffix!r}; {WANTED}.")
        return [kind(path, field)]
    if not path.is_dir():
        raise CorpusError(f"{path} does not exist; {WANTED}.")
    arrow = arrow_files(path)
    if arrow is not None:
        return [ArrowFile(file, field) for file in arrow]
    files = sorted((f for f in path.rglob("*") if f.is_file()), key=lambda f: f.relative_to(path).as_posix())
    many: list[Source] = [MANY[file.suffix](file, field) for file in files if file.suffix in MANY]
    texts = TextFiles(path)
    if many and texts.count:
        raise CorpusError(
            f"{path} holds text files and files of many documents, so it is not clear what a document is; "
            "give one of the files, or a folder of one sort."
        )
    return many or [texts]
