"""Calls of the kernels: the pointers each gets, and how calls are distributed over threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.engine.library import Job, Library
from regard.engine.native.grid import Grid, JobTable
from regard.engine.native.sums import Share, Sum, starts
from regard.engine.native.units import Unit
from regard.engine.problem import Problem
from regard.engine.schedule import chunks
from regard.engine.stopping import check, may_stop

__all__ = ["Batch", "Operands", "Task", "packed", "task_of"]

# Pieces per thread in one batch: enough that no thread waits long for the last one.
AT_ONCE = 32
# The same inside a `stoppable` block. A running batch can't be cancelled; it takes a third of a second at
# 40,000 tokens.
STOPPABLE = 8
# The most numbers in the result buffers of one batch.
ROOM = 1 << 23


@dataclass(frozen=True)
class Task:
    """One kernel call or a table of calls: the partial sums to add, and the tensors that must stay alive
    while it has pointers to them."""

    job: Job | JobTable
    length: int
    shares: list[Share]
    keep: Any = None

    def addresses(self) -> list[int]:
        """The addresses of its jobs."""
        return self.job.addresses() if isinstance(self.job, JobTable) else [ctypes.addressof(self.job)]


def task_of(job: Any, unit: Unit | Grid, sums: Sequence[Sum], keep: Any = None) -> Task:
    """The task of a job or a table of jobs that `unit.job` made; sets the pointers to its sums."""
    held = (keep, unit.visit(job))
    return Task(job, len(unit.keys), [share for each in sums for share in each.aim(job, unit)], held)


class Operands:
    """The queries and keys from which jobs compute scores; they must live as long as the jobs."""

    def __init__(self, problem: Problem) -> None:
        self.q, self.k = packed(problem.q), packed(problem.k)
        self.group, self.scale = problem.group, problem.scoring.scale
        self.starts = starts(self.q), starts(self.k)
        self.strides = self.q.stride(2), self.k.stride(2)

    def give(self, job: Any, unit: Unit | Grid) -> None:
        """Point a job at the rows of its head."""
        q, k = self.starts
        job.q, job.k = q(unit.batch, unit.head), k(unit.batch, unit.head // self.group)
        job.q_stride, job.k_stride = self.strides
        job.dim, job.scale = self.q.shape[3], self.scale


def packed(x: Tensor) -> Tensor:
    """Rows that the kernels can read: float32, with the numbers of a row contiguous."""
    x = x.detach().to(torch.float32)
    return x if x.stride(-1) == 1 else x.contiguous()


class Batch:
    """Runs tasks on PyTorch's number of threads, and adds up their sums in the order of the tasks."""

    def __init__(self, library: Library) -> None:
        self.library, self.threads = library, torch.get_num_threads()
        self.tasks: list[Task] = []
        self.room = ROOM

    def add(self, task: Task) -> None:
        """Add a task; run all pending ones when there are enough."""
        self.tasks.append(task)
        self.room -= sum(share.own.numel() for share in task.shares)
        if len(self.tasks) >= AT_ONCE * self.threads or self.room < 0:
            self.finish()

    def finish(self) -> None:
        """Run all pending tasks."""
        tasks, self.tasks, self.room = self.tasks, [], ROOM
        # Start long tasks first, so that threads finish at about the same time.
        by_length = sorted(tasks, key=lambda task: task.length, reverse=True)
        addresses = [at for task in by_length for at in task.addresses()]
        at_once = STOPPABLE * self.threads if may_stop() else max(1, len(addresses))
        for some in chunks(range(len(addresses)), at_once):
            check()
            self.library.fold(addresses[some.start : some.stop], self.threads)
        for task in tasks:
            for share in task.shares:
                share.bring_home()
