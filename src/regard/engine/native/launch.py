"""A table of jobs that runs again with other tensors."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.engine.native.grid import FIELDS, WORD, JobTable
from regard.engine.native.library import Library

__all__ = ["Launch"]


class Launch:
    """The jobs of a table, whose results and operands are each time other tensors of the same layout.

    `given` names the fields of a job that point into such tensors. What the other fields point to is kept.
    """

    def __init__(self, table: JobTable, given: Mapping[str, Tensor], keep: Any) -> None:
        for name, x in given.items():
            setattr(table, name, getattr(table, name) - x.data_ptr())
        self.fields = [FIELDS[name] for name in given]
        self.jobs, self.keep = table.rows(), keep

    def run(self, library: Library, given: Iterable[Tensor]) -> None:
        """Run all jobs on these tensors, which come in the order of their names."""
        words = array("q", bytes(WORD * len(FIELDS)))
        for at, x in zip(self.fields, given, strict=True):
            words[at] = x.data_ptr()
        table = self.jobs + torch.frombuffer(words, dtype=torch.int64)
        first, size = table.data_ptr(), table.stride(0) * WORD
        library.fold(range(first, first + size * len(table), size), torch.get_num_threads())
