"""A table of jobs that runs again with other tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from ctypes import c_int64, c_uint64, c_void_p
from typing import Any

import torch
from torch import Tensor

from regard.engine.library import Library
from regard.engine.native.grid import FIELDS, JobTable

__all__ = ["Launch"]


class Launch:
    """The jobs of a table, whose results and operands are each time other tensors of the same layout.

    `given` names the fields of a job that point into such tensors. What the other fields point to is kept.
    Those of `fresh` begin each run with the numbers that their tensor has now.
    """

    def __init__(
        self, table: JobTable, given: Mapping[str, Tensor], fresh: Collection[str], keep: Any
    ) -> None:
        for name, x in given.items():
            setattr(table, name, getattr(table, name) - x.data_ptr())
        self.jobs, n = table.rows().contiguous(), len(given)
        self.keep = keep, [x for name, x in given.items() if name in fresh]
        starts = [x.data_ptr() if name in fresh else None for name, x in given.items()]
        sizes = [x.untyped_storage().nbytes() if name in fresh else 0 for name, x in given.items()]
        self.addresses = c_uint64 * n
        self.layout = (c_int64 * n)(*[FIELDS[name] for name in given]), (c_void_p * n)(*starts)
        self.sizes, self.n = (c_int64 * n)(*sizes), n
        self.table = self.jobs.data_ptr(), len(self.jobs)

    def run(self, library: Library, given: Iterable[Tensor]) -> None:
        """Run all jobs on these tensors, which come in the order of their names."""
        addresses = self.addresses(*[x.data_ptr() for x in given])
        library.launch(*self.table, addresses, *self.layout, self.sizes, self.n, torch.get_num_threads())
